// Light, dark, or as the system has it; kept in the browser's storage. The style sheets have one rule for dark colors,
// which follows the system; a choice switches this rule on or off.

const STORAGE_KEY = "manyheads-theme";
const DARK = "(prefers-color-scheme: dark)";
export const THEMES = ["system", "light", "dark"];

let rules = null;

export function loadTheme() {
  try {
    const stored = localStorage.getItem(STORAGE_KEY);
    return THEMES.includes(stored) ? stored : "system";
  } catch {
    return "system"; // the browser allows no storage
  }
}

export function saveTheme(theme) {
  try {
    localStorage.setItem(STORAGE_KEY, theme);
  } catch {
    // The next visit follows the system.
  }
}

export function applyTheme(theme) {
  rules ??= [...document.styleSheets]
    .flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule instanceof CSSMediaRule && rule.conditionText === DARK);
  for (const rule of rules) rule.media.mediaText = { system: DARK, light: "not all", dark: "all" }[theme];
  document.documentElement.style.colorScheme = theme === "system" ? "" : theme;
}
