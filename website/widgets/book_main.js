// Entry point of the book: every element with data-widget becomes a widget.

import { showWidget } from "./widget_frame.js";
import { ATTENTION_WIDGETS } from "./attention_widgets.js";
import { LAYER_WIDGETS } from "./layer_widgets.js";
import { MODEL_WIDGETS } from "./model_widgets.js";
import { TRAINING_WIDGETS } from "./training_widgets.js";

const BOOK_WIDGETS = { ...ATTENTION_WIDGETS, ...LAYER_WIDGETS, ...MODEL_WIDGETS, ...TRAINING_WIDGETS };

for (const root of document.querySelectorAll("[data-widget]")) showWidget(root, BOOK_WIDGETS[root.dataset.widget]);
