// Entry point of the single-file walk, which embeds the data of every layer as JSON.

import { element } from "./dom.js";
import { LANGUAGES, preferredLanguage } from "./page_languages.js";
import { createSentencePair } from "./sentence_pair.js";
import { TEXTS } from "./texts.js";
import { showWalk } from "./walk_explorer.js";
import { WALK_TEXTS } from "./walk_texts.js";

const layersByStack = JSON.parse(document.getElementById("walk-data").textContent);
const container = document.getElementById("walk");
const [{ source: sourceText, target: targetText, languages: textLanguages }] = layersByStack.encoder;
const walkSource = { load: (stack, layer) => layersByStack[stack][layer] };

function openWalk(language) {
  document.documentElement.lang = language;
  const texts = TEXTS[language];
  const rows = [
    ["source", texts.source, sourceText, textLanguages.source],
    ["target", texts.target, targetText, textLanguages.target],
  ];
  document.getElementById("sentence").replaceChildren(createSentencePair(rows));
  const options = Object.entries(LANGUAGES).map(([code, name]) => element("option", { value: code, lang: code, selected: code === language }, name));
  const choose = (event) => openWalk(event.target.value);
  document.getElementById("language").replaceChildren(element("select", { "aria-label": texts.language, onchange: choose }, ...options));
  document.getElementById("walk-title").textContent = WALK_TEXTS[language].title;
  showWalk(container, walkSource, { language });
}

openWalk(preferredLanguage());
