// A browser starts no worker from a file, and the search of the theme needs one. Where the site is opened from the
// disk, a hidden frame runs the script of the worker instead. The theme looks for the names of this file and class.

function loadScripts(page, addresses) {
  const loaded = (address) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.src = address;
      script.addEventListener("load", resolve);
      script.addEventListener("error", () => reject(new Error(`${address} cannot be loaded`)));
      page.body.append(script);
    });
  return addresses.reduce((previous, address) => previous.then(() => loaded(address)), Promise.resolve());
}

class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.onmessage = null;
    this.onerror = null;
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.frame.title = "search";
    document.body.append(this.frame);
    const scope = this.frame.contentWindow;
    scope.document.open();
    scope.document.write("<!doctype html><title>search</title><body></body>");
    scope.document.close();
    scope.postMessage = (data) => this.emit(new MessageEvent("message", { data }), this.onmessage);
    scope.importScripts = (...addresses) => loadScripts(scope.document, addresses);
    this.ready = loadScripts(scope.document, [address]);
    this.ready.catch((error) => this.emit(new ErrorEvent("error", { message: error.message, error }), this.onerror));
  }

  emit(event, handler) {
    this.dispatchEvent(event);
    if (handler) handler.call(this, event);
  }

  postMessage(data) {
    const copy = structuredClone(data); // as a worker gets it
    const scope = this.frame.contentWindow;
    this.ready.then(() => scope.dispatchEvent(new scope.MessageEvent("message", { data: copy })), () => {});
  }

  terminate() {
    this.frame.remove();
  }
}

window.IFrameWorker = FrameWorker;
if (location.protocol === "file:") window.Worker = FrameWorker;
