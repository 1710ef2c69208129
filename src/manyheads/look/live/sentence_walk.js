// The walk of the present sentence, led by Figure 1. It opens at the selected head, and follows every change while it
// is shown.

import { element } from "../assets/dom.js";
import { showWalk } from "../assets/walk_explorer.js";
import { createWalkSource } from "./walk_source.js";

export class SentenceWalk {
  constructor(page) {
    this.page = page;
    const { texts } = page;
    this.container = page.walkContainer ??= element("div", {}); // kept with the place in the walk, also in another language
    this.node = element(
      "section",
      { class: "card walk-card", "aria-label": texts.walk, hidden: true },
      element("h2", { class: "visually-hidden" }, texts.walk),
      element("p", { class: "hint" }, texts.walkHint),
      this.container,
    );
  }

  refresh() {
    const { sentence, translator, state } = this.page;
    this.node.hidden = !sentence || state.panel !== "walk";
    const wasHidden = this.wasHidden ?? true;
    this.wasHidden = this.node.hidden;
    if (this.node.hidden) return;
    const head = wasHidden && this.page.walkedHead !== state.head ? state.head : null; // selected since it was shown
    if (this.shown === sentence && !head) return;
    this.shown = sentence;
    this.page.walkedHead = state.head;
    const source = createWalkSource(translator, sentence, { cuts: state.cuts });
    showWalk(this.container, source, { language: state.language, head });
  }
}
