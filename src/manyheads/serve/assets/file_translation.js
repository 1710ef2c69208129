// Translate a file. Of a text, line n of the result is the translation of line n; a document keeps its format.

import { element, isTouchScreen } from "./look/dom.js";
import { getBlob, post, postForm, retryWhileBusy } from "./api_client.js";
import { confidenceLevel } from "./word_spans.js";

const MAX_LINES_PER_REQUEST = 32; // few enough that the progress bar moves

export class FileTranslation {
  constructor(page, getOptions) {
    this.page = page;
    this.getOptions = getOptions; // source, target and model
    this.controller = null;
  }

  // The endings of the documents that the server can read.
  get documentFormats() {
    return this.page.settings.supportedFilesFormat.filter((suffix) => suffix !== ".txt");
  }

  build() {
    const { texts } = this.page;
    this.controller?.abort();
    const parts = (this.parts = {
      file: element("input", {
        type: "file",
        id: "file",
        class: "visually-hidden",
        accept: ["text/plain", ".txt", ...this.documentFormats].join(),
        onchange: () => this.selectFile(),
      }),
      name: element("span", { class: "quiet" }, texts.noFile),
      start: element(
        "button",
        { type: "button", class: "start", disabled: true, onclick: () => this.start() },
        texts.translateFile,
      ),
      stop: element(
        "button",
        { type: "button", class: "stop", hidden: true, onclick: () => this.controller.abort() },
        texts.cancel,
      ),
      bar: element("progress", { max: 1, value: 0, hidden: true, "aria-label": texts.file }),
      status: element("p", { class: "message", role: "status" }),
      link: element("a", { class: "download", hidden: true }),
    });
    return element(
      "section",
      { class: "files surface", "aria-label": texts.file },
      element("h3", {}, texts.file),
      element("p", { class: "quiet" }, `${texts.fileHint(this.documentFormats.join(", "))} ${isTouchScreen() ? "" : texts.dropHint}`),
      parts.file,
      element(
        "div",
        { class: "row" },
        element("label", { for: "file" }, texts.choose),
        parts.name,
        parts.start,
        parts.stop,
        parts.bar,
      ),
      parts.status,
      parts.link,
    );
  }

  selectFile() {
    const [file] = this.parts.file.files;
    this.parts.start.disabled = !file;
    this.parts.name.textContent = file?.name ?? this.page.texts.noFile;
    this.parts.status.textContent = "";
    this.discardResult();
  }

  // A file that is dropped anywhere on the page is chosen while the element is shown. The browser never opens it.
  acceptDrops(root) {
    if (this.dropRoot === root) return;
    this.dropRoot = root;
    const isFile = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
    const mark = (event, isOver) => {
      if (!isFile(event)) return;
      event.preventDefault();
      root.classList.toggle("is-dropping", isOver);
    };
    document.addEventListener("dragover", (event) => mark(event, true));
    document.addEventListener("dragleave", (event) => event.relatedTarget || mark(event, false)); // out of the window
    document.addEventListener("drop", (event) => {
      mark(event, false);
      if (!isFile(event) || !root.isConnected) return;
      this.parts.file.files = event.dataTransfer.files;
      this.selectFile();
      this.parts.start.scrollIntoView({ block: "nearest" });
      this.parts.start.focus();
    });
  }

  discardResult() {
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = null;
    this.parts.link.hidden = true;
  }

  async start() {
    const { parts, page } = this;
    const [file] = parts.file.files;
    const options = this.getOptions();
    this.controller = new AbortController();
    this.discardResult();
    parts.status.classList.remove("is-error");
    parts.stop.hidden = parts.bar.hidden = false;
    parts.start.disabled = true;
    try {
      const suffix = this.documentFormats.find((suffix) => file.name.toLowerCase().endsWith(suffix));
      const content = suffix ? await this.translateDocument(file, options) : await this.translateText(file, options);
      this.offerDownload(content, `${file.name.replace(/\.[^.]*$/, "")}.${options.target}${suffix ?? ".txt"}`);
    } catch (error) {
      parts.status.textContent = this.describeError(error, page.texts);
      parts.status.classList.toggle("is-error", error.name !== "AbortError");
    } finally {
      parts.stop.hidden = parts.bar.hidden = true;
      parts.start.disabled = false;
    }
  }

  describeError(error, texts) {
    if (error.name === "AbortError") return texts.stopped;
    if (error.status || error.isLocal) return error.message;
    return error instanceof TypeError && /decod|encoded/i.test(error.message) ? texts.notUtf8(this.documentFormats.join(", ")) : texts.unreachable;
  }

  // The server translates the whole document, and keeps it for a while.
  async translateDocument(file, options) {
    const { signal } = this.controller;
    const form = new FormData();
    for (const [name, value] of Object.entries({ ...options, file })) form.append(name, value);
    this.parts.bar.removeAttribute("value"); // how far the server is, is not known
    this.parts.status.textContent = this.page.texts.working;
    const { translatedFileUrl } = await postForm("translate_file", form, signal);
    const document = await getBlob(`download_file/${translatedFileUrl.split("/").at(-1)}`, signal);
    this.parts.status.textContent = this.page.texts.done;
    return document;
  }

  async translateText(file, options) {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return new Blob([await this.translate(text, options)], { type: "text/plain;charset=utf-8" });
  }

  // Line endings are kept, and empty lines are not sent.
  async translate(text, options) {
    const { texts, settings } = this.page;
    const pieces = text.split(/(\r\n|\n|\r)/); // lines at even indices, their endings between them
    const indices = pieces.flatMap((line, n) => (n % 2 === 0 && line.trim() ? [n] : []));
    if (!indices.length) throw Object.assign(new Error(texts.emptyFile), { isLocal: true });
    for (const n of indices)
      if ([...pieces[n]].length > settings.charLimit)
        throw Object.assign(new Error(texts.lineTooLong(n / 2 + 1, settings.charLimit)), { isLocal: true });
    let done = 0;
    let low = 0;
    const showProgress = () => {
      this.parts.bar.value = done / indices.length;
      this.parts.status.textContent = this.page.texts.progress(done, indices.length);
    };
    showProgress();
    for (const batch of createBatches(indices, pieces, settings)) {
      const { signal } = this.controller;
      const fields = { q: batch.map((n) => pieces[n]), ...options };
      const { translatedText, confidence } = await retryWhileBusy(
        () => post("translate", fields, signal),
        signal,
        (seconds) => (this.parts.status.textContent = this.page.texts.retrying(seconds)),
      );
      batch.forEach((n, index) => (pieces[n] = translatedText[index].replace(/[\r\n]+/g, " ")));
      low += (confidence ?? []).filter((value) => confidenceLevel(value) === "low").length;
      done += batch.length;
      showProgress();
    }
    if (low) this.parts.status.textContent += `. ${texts.lowLines(low, indices.length)}`;
    return pieces.join("");
  }

  offerDownload(content, name) {
    const { link } = this.parts;
    this.url = URL.createObjectURL(content);
    link.href = this.url;
    link.download = name;
    link.textContent = this.page.texts.download(name);
    link.hidden = false;
  }
}

// Indices of lines, as many as fit into a request.
function* createBatches(indices, pieces, { charLimit, textLimit }) {
  const maxLines = Math.min(textLimit, MAX_LINES_PER_REQUEST);
  let batch = [];
  let characters = 0;
  for (const n of indices) {
    const length = [...pieces[n]].length;
    if (batch.length === maxLines || (batch.length && characters + length > charLimit)) {
      yield batch;
      [batch, characters] = [[], 0];
    }
    batch.push(n);
    characters += length;
  }
  if (batch.length) yield batch;
}
