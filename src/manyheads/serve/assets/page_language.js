// The language of the page, kept in the browser's storage.

import { preferredLanguage } from "./look/page_languages.js";
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
