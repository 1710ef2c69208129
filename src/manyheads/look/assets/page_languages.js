// The languages that every page is written in, and the names of languages in them.

export const LANGUAGES = { en: "English", ko: "한국어" };

// The first language of the browser that the pages have.
export function preferredLanguage() {
  const codes = navigator.languages.map((language) => language.slice(0, 2));
  return codes.find((code) => Object.hasOwn(LANGUAGES, code)) ?? "en";
}

// The name of a language, written in the language of the page.
export function languageName(code, pageLanguage, fallback = code) {
  try {
    return new Intl.DisplayNames([pageLanguage], { type: "language" }).of(code) ?? fallback;
  } catch {
    return fallback; // not a language tag
  }
}
