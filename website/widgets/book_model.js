// The model of the book: a script of its own, loaded when a page has a widget that needs it.

import { LiveTranslator } from "../../src/manyheads/look/live/translator.js";
import { MissingModelError, say } from "./widget_frame.js";

let loading = null;

// Resolves to a translator; every widget of a page shares it.
export function loadBookModel() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    const own = document.querySelector('script[src$="assets/book.js"]').src;
    script.src = own.replace(/book\.js$/, "book-model.js");
    script.onload = () => resolve(new LiveTranslator(window.manyheadsBookModel.models[0]));
    script.onerror = () =>
      reject(
        new MissingModelError(
          say(
            "These pages were built without a model: make docs builds them with one.",
            "모델 없이 만든 페이지입니다. make docs로 모델과 함께 만들 수 있습니다.",
          ),
        ),
      );
    document.head.append(script);
  });
  return loading;
}
