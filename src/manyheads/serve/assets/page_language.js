// The language of the page, kept in the browser's storage, and the names of languages in it.

import { preferredLanguage } from "./look/texts.js";
import { TEXTS } from "./texts.js";

const STORAGE_KEY = "manyheads-language";

export function loadLanguage() {
  const stored = readStorage();
  return stored in TEXTS ? stored : preferredLanguage();
}

function readStorage() {
  try {
    return localStorage.getItem(STORAGE_KEY) ?? "";
  } catch {
    return ""; // the browser allows no storage
  }
}

export function saveLanguage(language) {
  try {
    localStorage.setItem(STORAGE_KEY, language);
  } catch {
    // The next visit uses the browser's language.
  }
}

// The name of a language, written in the language of the page.
export function languageName(code, language, fallback = code) {
  try {
    return new Intl.DisplayNames([language], { type: "language" }).of(code) ?? fallback;
  } catch {
    return fallback; // not a language tag
  }
}
