// Entry point of the single-file page, which embeds its data as JSON.

import { showAttention } from "./attention_explorer.js";

const data = JSON.parse(document.getElementById("attention").textContent);
showAttention(document.getElementById("look"), data, { permalink: true });
