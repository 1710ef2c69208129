// The page of one file: its data stand beside it.

import { showAttention } from "./show.js";

const data = JSON.parse(document.getElementById("attention").textContent);
showAttention(document.getElementById("look"), data, { permalink: true });
