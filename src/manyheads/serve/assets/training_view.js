// The training view: the curves of the runs that the server was given, in one chart for each metric. They grow while a run
// trains.

import { element, isTouchScreen } from "./look/dom.js";
import { get } from "./api_client.js";
import { formatNumber } from "./chart_scale.js";
import { MAX_WIDTH, createChart } from "./line_chart.js";
import { Notice } from "./notice.js";

const RELOAD_INTERVAL = 15000; // milliseconds
const METRICS = ["perplexity", "bleu", "loss", "learning_rate", "grad_norm", "tokens_per_second"];
const LOGARITHMIC = new Set(["perplexity"]);
const SMOOTH = new Set(["learning_rate"]); // as it is
const SERIES = ["train", "valid"];
const RUN_COLORS = ["--run-1", "--run-2", "--run-3", "--run-4", "--run-5", "--run-6"]; // of server.css, in turn
const MAX_SMOOTHING = 0.98;
const CARD_PADDING = 44; // both sides, of server.css

export class TrainingView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "training-view" });
    this.state = { axis: "step", smoothing: 0, hidden: new Set() };
  }

  build() {
    const { texts } = this.page;
    this.notice = new Notice(this.page);
    this.controls = element("div", { class: "choices-row", hidden: true });
    this.curves = element("div", { class: "curves" });
    this.root.replaceChildren(element("h2", {}, texts.views.training), this.notice.root, this.controls, this.curves);
    this.runs = [];
    this.loaded = "";
  }

  enter() {
    this.leave();
    this.load();
    this.timer = setInterval(() => this.load(), RELOAD_INTERVAL);
  }

  leave() {
    clearInterval(this.timer);
  }

  async load() {
    const { texts } = this.page;
    try {
      const runs = await get("training");
      this.notice.show(runs.length ? (isTouchScreen() ? texts.curvesTouchHint : texts.curvesHint) : texts.noRun);
      const data = JSON.stringify(runs);
      if (data === this.loaded) return;
      this.loaded = data;
      this.runs = distinguishNames(runs);
      this.drawControls();
      this.drawCurves();
    } catch (error) {
      this.notice.showFailure(error, () => this.load());
    }
  }

  // ---- controls: runs, the horizontal axis, smoothing

  drawControls() {
    const { texts } = this.page;
    const { state } = this;
    this.controls.hidden = !this.runs.length;
    const axes = ["step", "time"].map((axis) => element("option", { value: axis, selected: axis === state.axis }, texts.axes[axis]));
    const change = (difference) => {
      Object.assign(state, difference);
      this.drawCurves();
    };
    const smoothing = element("input", {
      type: "range", name: "smoothing", min: 0, max: MAX_SMOOTHING, step: 0.02, value: state.smoothing,
      oninput: ({ target }) => change({ smoothing: Number(target.value) }),
    }); // prettier-ignore
    const axis = element("select", { name: "axis", onchange: ({ target }) => change({ axis: target.value }) }, ...axes);
    const hasTimes = this.runs.some((run) => SERIES.some((series) => run[series].some(({ run_seconds }) => run_seconds !== undefined)));
    this.controls.replaceChildren(
      element("div", { class: "runs", role: "group", "aria-label": texts.runs }, ...this.runs.map((run, n) => this.createRun(run, n))),
      hasTimes ? element("label", {}, `${texts.axis} `, axis) : "",
      element("label", { class: "smoothing" }, `${texts.smoothing} `, smoothing),
    );
  }

  createRun(run, index) {
    const { texts } = this.page;
    const state = element("span", { class: "quiet" }, ` (${run.ended ? texts.ended : texts.running})`);
    const name = [run.name, state];
    if (this.runs.length === 1) return element("h3", {}, element("span", { class: "quiet" }, `${texts.run}: `), ...name);
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = this.runColor(index);
    const { hidden } = this.state;
    const toggle = ({ target }) => {
      target.checked ? hidden.delete(run.name) : hidden.add(run.name);
      this.drawCurves();
    };
    const box = element("input", { type: "checkbox", name: "run", value: run.name, onchange: toggle });
    box.checked = !hidden.has(run.name);
    return element("label", { class: "run" }, box, swatch, ...name);
  }

  runColor(index) {
    return this.runs.length > 1 ? `var(${RUN_COLORS[index % RUN_COLORS.length]})` : null;
  }

  // ---- curves

  drawCurves() {
    this.charts = [];
    const curves = METRICS.map((metric) => [metric, this.listLines(metric)]).filter(([, lines]) => lines.length);
    const places = curves.flatMap(([, lines]) => lines.flatMap(({ points }) => points.map(([place]) => place)));
    const figures = curves.map(([metric, lines]) => this.createCurve(metric, lines, places));
    this.curves.replaceChildren(...figures);
  }

  // A chart is scaled to its card. One that is narrower than usual is drawn narrower, so that its text stays readable.
  get chartWidth() {
    return Math.min(MAX_WIDTH, this.curves.clientWidth - CARD_PADDING) || MAX_WIDTH;
  }

  // The lines of a metric, of all runs that are shown.
  listLines(metric) {
    const { texts } = this.page;
    const { axis, smoothing, hidden } = this.state;
    return this.runs.flatMap((run, index) =>
      SERIES.flatMap((series) => {
        const points = extractPoints(run[series], metric, axis === "time" ? "run_seconds" : "step");
        if (!points.length || hidden.has(run.name)) return [];
        const name = this.runs.length > 1 ? `${run.name} ${texts[series]}` : texts[series];
        const isSmoothed = smoothing && series === "train" && !SMOOTH.has(metric);
        const smoothed = isSmoothed ? smoothPoints(points, smoothing, LOGARITHMIC.has(metric)) : null;
        return [{ name, series, color: this.runColor(index), points, smoothed }];
      }),
    );
  }

  createCurve(metric, lines, places) {
    const { texts } = this.page;
    const describeEnds = (points) => texts.firstToLast(formatNumber(points[0][1]), formatNumber(points.at(-1)[1]));
    const summary = lines.map(({ name, points }) => `${name}: ${describeEnds(points)}`).join("; ");
    const readout = element("output", { class: "readout" }, summary);
    const chart = createChart({
      lines,
      places,
      width: this.chartWidth,
      isLogarithmic: LOGARITHMIC.has(metric),
      isTime: this.state.axis === "time",
      label: texts.curveLabel(texts.metrics[metric], this.runs.map(({ name }) => name).join(", ")),
      texts,
      onCursor: (place) => this.charts.forEach((own) => own.moveTo(place)),
      onRead: (text) => (readout.textContent = text),
    });
    this.charts.push(chart);
    const shown = SERIES.filter((series) => lines.some((line) => line.series === series));
    return element(
      "figure",
      { class: "curve surface", "data-curve": metric },
      element(
        "figcaption",
        {},
        element("strong", {}, texts.metrics[metric]),
        ...shown.map((series) => element("span", { class: `series ${series}${this.runs.length > 1 ? " plain" : ""}` }, texts[series])),
        texts.metricNotes[metric] ? element("span", { class: "quiet" }, texts.metricNotes[metric]) : null,
      ),
      chart.svg,
      readout,
      this.createTable(lines),
    );
  }

  // Filled when it is opened.
  createTable(lines) {
    const { texts } = this.page;
    const isTime = this.state.axis === "time";
    const details = element("details", {}, element("summary", {}, texts.valuesTable));
    details.addEventListener("toggle", () => {
      if (details.children.length > 1) return;
      const places = [...new Set(lines.flatMap(({ points }) => points.map(([place]) => place)))].sort((a, b) => a - b);
      const values = lines.map(({ points }) => new Map(points));
      const header = [isTime ? texts.seconds : texts.step, ...lines.map(({ name }) => name)];
      const rows = places.map((place) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, isTime ? place.toFixed(1) : place.toLocaleString("en")),
          ...values.map((byPlace) => element("td", {}, byPlace.has(place) ? String(byPlace.get(place)) : "")),
        ),
      );
      const table = element(
        "table",
        {},
        element("thead", {}, element("tr", {}, ...header.map((name) => element("th", { scope: "col" }, name)))),
        element("tbody", {}, ...rows),
      );
      const region = { class: "scroll-x tall", tabindex: 0, role: "region", "aria-label": texts.valuesTable };
      details.append(element("div", region, table));
    });
    return details;
  }
}

function extractPoints(lines, metric, place) {
  const isNumber = (value) => typeof value === "number";
  return lines.filter((line) => isNumber(line[metric]) && isNumber(line[place])).map((line) => [line[place], line[metric]]);
}

// An exponential moving average that does not begin at zero, of logarithms where these are drawn.
function smoothPoints(points, weight, isLogarithmic) {
  let [sum, total] = [0, 0];
  return points.map(([place, value]) => {
    [sum, total] = [weight * sum + (isLogarithmic ? Math.log(value) : value), weight * total + 1];
    return [place, isLogarithmic ? Math.exp(sum / total) : sum / total];
  });
}

// Runs of the same name are numbered.
function distinguishNames(runs) {
  const seen = new Map();
  return runs.map((run) => {
    const count = (seen.get(run.name) ?? 0) + 1;
    seen.set(run.name, count);
    return count > 1 ? { ...run, name: `${run.name} (${count})` } : run;
  });
}
