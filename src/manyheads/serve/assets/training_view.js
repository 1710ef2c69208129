// The curves of the runs that the server was given, drawn by hand as SVG; they grow while a run trains.

import { element, svgElement } from "./look/elements.js";
import { get } from "./asking.js";

const EVERY = 15000; // milliseconds
const [WIDTH, HEIGHT] = [560, 240];
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 12, 10, 30];
const CURVES = ["perplexity", "bleu", "loss", "learning_rate", "grad_norm", "tokens_per_second"];
const LOGARITHMIC = new Set(["perplexity"]);
const KINDS = ["train", "valid"];

export class TrainingView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "training-view" });
  }

  build() {
    this.told = element("p", { class: "told", role: "status" });
    this.runs = element("div", {});
    this.root.replaceChildren(element("h2", {}, this.page.texts.views.training), this.told, this.runs);
    this.drawn = "";
  }

  enter() {
    this.leave();
    this.load();
    this.timer = setInterval(() => this.load(), EVERY);
  }

  leave() {
    clearInterval(this.timer);
  }

  async load() {
    const { texts } = this.page;
    try {
      const runs = await get("training");
      this.told.textContent = runs.length ? texts.readHint : texts.noRun;
      const now = JSON.stringify(runs);
      if (now !== this.drawn) this.runs.replaceChildren(...runs.map((run) => this.run(run)));
      this.drawn = now;
    } catch (fault) {
      this.told.textContent = fault.status ? fault.message : texts.unreachable;
    }
  }

  run(run) {
    const { texts } = this.page;
    const curves = CURVES.flatMap((name) => {
      const lines = KINDS.map((kind) => ({ kind, points: pointsOf(run[kind], name) })).filter(({ points }) => points.length);
      return lines.length ? [this.curve(run, name, lines)] : [];
    });
    return element(
      "section",
      { class: "run" },
      element("h3", {}, run.name, element("span", { class: "quiet" }, ` ${run.ended ? texts.ended : texts.going}`)),
      element("div", { class: "curves" }, ...curves),
    );
  }

  curve(run, name, lines) {
    const { texts } = this.page;
    const scale = scaled(lines, LOGARITHMIC.has(name));
    const read = element("output", { class: "reading" });
    const last = (points) => texts.from_to(short(points[0][1]), short(points.at(-1)[1]));
    const told = lines.map(({ kind, points }) => `${texts[kind]}: ${last(points)}`).join("; ");
    read.textContent = told;
    const picture = this.picture(run, name, lines, scale, read);
    return element(
      "figure",
      { class: "curve", "data-curve": name },
      element(
        "figcaption",
        {},
        element("strong", {}, texts.curves[name]),
        ...lines.map(({ kind }) => element("span", { class: `key-of ${kind}` }, texts[kind])),
        texts.notes[name] ? element("span", { class: "quiet" }, texts.notes[name]) : null,
      ),
      picture,
      read,
      this.table(lines),
    );
  }

  picture(run, name, lines, { x, y, steps, values }, read) {
    const { texts } = this.page;
    const marks = svgElement("g", { class: "axis" });
    for (const value of values)
      marks.append(
        svgElement("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
        svgElement("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)),
      );
    for (const step of steps)
      marks.append(svgElement("text", { x: x(step), y: HEIGHT - 10, "text-anchor": "middle" }, step.toLocaleString("en")));
    const cursor = svgElement("g", { class: "cursor" });
    const svg = svgElement(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        role: "slider",
        tabindex: 0,
        "aria-label": texts.curveLabel(texts.curves[name], run.name),
        "aria-valuemin": 0,
      },
      marks,
      ...lines.map(({ kind, points }) =>
        svgElement("path", { class: kind, d: points.map(([step, value], n) => `${n ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("") }),
      ),
      ...lines.filter(({ kind, points }) => kind === "valid" || points.length === 1).flatMap(({ kind, points }) =>
        points.map(([step, value]) => svgElement("circle", { class: kind, cx: x(step), cy: y(value), r: 3 })),
      ),
      cursor,
    );
    const all = [...new Set(lines.flatMap(({ points }) => points.map(([step]) => step)))].sort((a, b) => a - b);
    svg.setAttribute("aria-valuemax", all.length - 1);
    let place = all.length - 1;
    const show = (n, moved = true) => {
      place = Math.max(0, Math.min(all.length - 1, n));
      const step = all[place];
      const said = lines.flatMap(({ kind, points }) => {
        const found = points.find(([one]) => one === step);
        return found ? [[kind, found[1]]] : [];
      });
      const text = `${texts.step} ${step.toLocaleString("en")}: ${said.map(([kind, value]) => `${texts[kind]} ${short(value)}`).join(", ")}`;
      svg.setAttribute("aria-valuenow", place);
      svg.setAttribute("aria-valuetext", text);
      if (!moved) return;
      read.textContent = text;
      cursor.replaceChildren(
        svgElement("line", { x1: x(step), x2: x(step), y1: TOP, y2: HEIGHT - BOTTOM }),
        ...said.map(([kind, value]) => svgElement("circle", { class: kind, cx: x(step), cy: y(value), r: 4.5 })),
      );
    };
    show(place, false);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * WIDTH;
      const near = all.reduce((best, step, n) => (Math.abs(x(step) - at) < Math.abs(x(all[best]) - at) ? n : best), 0);
      show(near);
    });
    svg.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: place - 1, ArrowDown: place - 1, ArrowRight: place + 1, ArrowUp: place + 1, Home: 0, End: all.length - 1 }[event.key];
      if (to === undefined) return;
      show(to);
      event.preventDefault();
    });
    return svg;
  }

  table(lines) {
    const { texts } = this.page;
    const steps = [...new Set(lines.flatMap(({ points }) => points.map(([step]) => step)))].sort((a, b) => a - b);
    const by = lines.map(({ points }) => new Map(points));
    const head = [texts.step, ...lines.map(({ kind }) => texts[kind])];
    const made = element("details", {}, element("summary", {}, texts.numbers));
    made.addEventListener("toggle", () => {
      if (made.children.length > 1) return;
      const rows = steps.map((step) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, step.toLocaleString("en")),
          ...by.map((own) => element("td", {}, own.has(step) ? String(own.get(step)) : "")),
        ),
      );
      const table = element(
        "table",
        {},
        element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
        element("tbody", {}, ...rows),
      );
      made.append(element("div", { class: "wide tall", tabindex: 0, role: "region", "aria-label": texts.numbers }, table));
    });
    return made;
  }
}

function pointsOf(lines, name) {
  return lines.filter((line) => typeof line[name] === "number").map((line) => [line.step, line[name]]);
}

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000 || size < 0.001) return Intl.NumberFormat("en", { notation: size >= 1000 ? "compact" : "scientific", maximumSignificantDigits: 3 }).format(value);
  return String(Number(value.toPrecision(4)));
}

// From steps and values to places of the picture, and what stands at its edges.
function scaled(lines, logarithmic) {
  const all = lines.flatMap(({ points }) => points);
  const steps = all.map(([step]) => step);
  const values = all.map(([, value]) => value).filter((value) => !logarithmic || value > 0);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const bend = logarithmic ? (value) => Math.log10(Math.max(value, 1e-9)) : (value) => value;
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (!logarithmic) low = Math.min(low, 0);
  if (high === low) high = low + 1;
  const marks = logarithmic ? tens(low, high) : rounds(low, high, 5);
  high = Math.max(high, marks.at(-1));
  const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((bend(value) - bend(low)) / (bend(high) - bend(low))) * (HEIGHT - TOP - BOTTOM);
  const inside = rounds(first, last, 4).filter((step) => step >= first && step <= last && Number.isInteger(step));
  return { x, y, values: marks, steps: inside.length > 1 ? inside : [...new Set([first, last])] };
}

// Some round numbers, the last of them not below `high`.
function rounds(low, high, most) {
  const least = (high - low || 1) / most;
  const ten = 10 ** Math.floor(Math.log10(least));
  const apart = [1, 2, 5, 10].map((one) => one * ten).find((one) => one >= least);
  const found = [];
  for (let n = Math.ceil(low / apart); ; n++) {
    found.push(Number((n * apart).toPrecision(12)));
    if (n * apart >= high) return found;
  }
}

function tens(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high; power++) found.push(10 ** power);
  const many = Math.ceil(found.length / 5);
  const some = found.filter((_, n) => n % many === 0);
  return some.length > 1 ? some : [low, high];
}
