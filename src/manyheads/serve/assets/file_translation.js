// A text file, line for line: line n of what comes out is the translation of line n.

import { element } from "./look/elements.js";
import { patiently, post } from "./asking.js";

export class FileBox {
  constructor(page, howAsked) {
    this.page = page;
    this.howAsked = howAsked; // source, target and model
    this.running = null;
  }

  build() {
    const { texts } = this.page;
    this.running?.abort();
    const parts = (this.parts = {
      file: element("input", { type: "file", id: "file", class: "visually-hidden", accept: ".txt,text/plain", onchange: () => this.chosen() }),
      name: element("span", { class: "quiet" }, texts.noFile),
      begin: element("button", { type: "button", class: "begin", disabled: true, onclick: () => this.begin() }, texts.translateFile),
      stop: element("button", { type: "button", class: "stop", hidden: true, onclick: () => this.running.abort() }, texts.cancel),
      bar: element("progress", { max: 1, value: 0, hidden: true, "aria-label": texts.file }),
      told: element("p", { class: "told", role: "status" }),
      link: element("a", { class: "saved", hidden: true }),
    });
    return element(
      "section",
      { class: "files", "aria-label": texts.file },
      element("h3", {}, texts.file),
      element("p", { class: "quiet" }, texts.fileHint),
      parts.file,
      element("label", { for: "file" }, texts.choose),
      parts.name,
      element("div", { class: "row" }, parts.begin, parts.stop, parts.bar),
      parts.told,
      parts.link,
    );
  }

  chosen() {
    const [file] = this.parts.file.files;
    this.parts.begin.disabled = !file;
    this.parts.name.textContent = file?.name ?? this.page.texts.noFile;
    this.parts.told.textContent = "";
    this.forget();
  }

  forget() {
    if (this.address) URL.revokeObjectURL(this.address);
    this.address = null;
    this.parts.link.hidden = true;
  }

  async begin() {
    const { parts, page } = this;
    const [file] = parts.file.files;
    const how = this.howAsked();
    this.running = new AbortController();
    this.forget();
    for (const [part, hidden] of [["stop", false], ["bar", false]]) parts[part].hidden = hidden;
    parts.begin.disabled = true;
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      this.offer(await this.translated(text, how), `${file.name.replace(/\.[^.]*$/, "")}.${how.target}.txt`);
    } catch (fault) {
      parts.told.textContent = this.why(fault, page.texts);
    } finally {
      parts.stop.hidden = parts.bar.hidden = true;
      parts.begin.disabled = false;
    }
  }

  why(fault, texts) {
    if (fault.name === "AbortError") return texts.stopped;
    if (fault.status || fault.ours) return fault.message;
    return fault instanceof TypeError && /decod|encoded/i.test(fault.message) ? texts.notUtf8 : texts.unreachable;
  }

  // Lines end as they ended before, and empty ones are not sent.
  async translated(text, how) {
    const { texts, settings } = this.page;
    const pieces = text.split(/(\r\n|\n|\r)/); // lines at even places, their ends between them
    const places = pieces.flatMap((line, n) => (n % 2 === 0 && line.trim() ? [n] : []));
    for (const n of places)
      if ([...pieces[n]].length > settings.charLimit)
        throw Object.assign(new Error(texts.lineTooLong(n / 2 + 1, settings.charLimit)), { ours: true });
    let done = 0;
    const tell = () => {
      this.parts.bar.value = places.length ? done / places.length : 1;
      this.parts.told.textContent = this.page.texts.progress(done, places.length);
    };
    tell();
    for (const some of together(places, pieces, settings)) {
      const { signal } = this.running;
      const asked = { q: some.map((n) => pieces[n]), ...how };
      const { translatedText } = await patiently(
        () => post("translate", asked, signal),
        signal,
        (seconds) => (this.parts.told.textContent = this.page.texts.trying(seconds)),
      );
      some.forEach((n, place) => (pieces[n] = translatedText[place].replace(/[\r\n]+/g, " ")));
      done += some.length;
      tell();
    }
    return pieces.join("");
  }

  offer(text, name) {
    const { link } = this.parts;
    this.address = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
    link.href = this.address;
    link.download = name;
    link.textContent = this.page.texts.download(name);
    link.hidden = false;
  }
}

// As many lines at once as a request may hold, and few enough that the bar moves.
function* together(places, pieces, { charLimit, textLimit }) {
  const most = Math.min(textLimit, 32);
  let some = [];
  let characters = 0;
  for (const n of places) {
    const length = [...pieces[n]].length;
    if (some.length === most || (some.length && characters + length > charLimit)) {
      yield some;
      [some, characters] = [[], 0];
    }
    some.push(n);
    characters += length;
  }
  if (some.length) yield some;
}
