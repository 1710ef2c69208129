// Entry point of the page, which embeds its models as JSON.

import { LivePage } from "./live_page.js";

const embedded = JSON.parse(document.getElementById("models").textContent);
document.getElementById("models").remove(); // its text is as large as the models
new LivePage(document.getElementById("live"), embedded);
