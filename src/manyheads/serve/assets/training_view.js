// The training view: the curves of the runs that the server was given. They grow while a run trains.

import { element, isTouchScreen } from "./look/dom.js";
import { get } from "./api_client.js";
import { createChart, formatNumber } from "./line_chart.js";

const RELOAD_INTERVAL = 15000; // milliseconds
const METRICS = ["perplexity", "bleu", "loss", "learning_rate", "grad_norm", "tokens_per_second"];
const LOGARITHMIC = new Set(["perplexity"]);
const SERIES = ["train", "valid"];

export class TrainingView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "training-view" });
  }

  build() {
    this.message = element("p", { class: "message", role: "status" });
    this.runs = element("div", {});
    this.root.replaceChildren(element("h2", {}, this.page.texts.views.training), this.message, this.runs);
    this.drawn = "";
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
      this.message.textContent = runs.length ? (isTouchScreen() ? texts.curvesTouchHint : texts.curvesHint) : texts.noRun;
      const data = JSON.stringify(runs);
      if (data !== this.drawn) this.runs.replaceChildren(...runs.map((run) => this.createRun(run)));
      this.drawn = data;
    } catch (error) {
      this.message.textContent = error.status ? error.message : texts.unreachable;
    }
  }

  createRun(run) {
    const { texts } = this.page;
    const curves = METRICS.flatMap((metric) => {
      const lines = SERIES.map((series) => ({ series, points: extractPoints(run[series], metric) }));
      const nonEmpty = lines.filter(({ points }) => points.length);
      return nonEmpty.length ? [this.createCurve(run, metric, nonEmpty)] : [];
    });
    const state = run.ended ? texts.ended : texts.running;
    return element(
      "section",
      { class: "run" },
      element("h3", {}, run.name, element("span", { class: "quiet" }, ` ${state}`)),
      element("div", { class: "curves" }, ...curves),
    );
  }

  createCurve(run, metric, lines) {
    const { texts } = this.page;
    const describeEnds = (points) => texts.firstToLast(formatNumber(points[0][1]), formatNumber(points.at(-1)[1]));
    const summary = lines.map(({ series, points }) => `${texts[series]}: ${describeEnds(points)}`).join("; ");
    const readout = element("output", { class: "readout" }, summary);
    const chart = createChart({
      lines,
      isLogarithmic: LOGARITHMIC.has(metric),
      label: texts.curveLabel(texts.metrics[metric], run.name),
      texts,
      onRead: (text) => (readout.textContent = text),
    });
    return element(
      "figure",
      { class: "curve", "data-curve": metric },
      element(
        "figcaption",
        {},
        element("strong", {}, texts.metrics[metric]),
        ...lines.map(({ series }) => element("span", { class: `series ${series}` }, texts[series])),
        texts.metricNotes[metric] ? element("span", { class: "quiet" }, texts.metricNotes[metric]) : null,
      ),
      chart,
      readout,
      this.createTable(lines),
    );
  }

  // Filled when it is opened.
  createTable(lines) {
    const { texts } = this.page;
    const details = element("details", {}, element("summary", {}, texts.valuesTable));
    details.addEventListener("toggle", () => {
      if (details.children.length > 1) return;
      const steps = [...new Set(lines.flatMap(({ points }) => points.map(([step]) => step)))].sort((a, b) => a - b);
      const values = lines.map(({ points }) => new Map(points));
      const header = [texts.step, ...lines.map(({ series }) => texts[series])];
      const rows = steps.map((step) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, step.toLocaleString("en")),
          ...values.map((byStep) => element("td", {}, byStep.has(step) ? String(byStep.get(step)) : "")),
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

function extractPoints(lines, metric) {
  return lines.filter((line) => typeof line[metric] === "number").map((line) => [line.step, line[metric]]);
}
