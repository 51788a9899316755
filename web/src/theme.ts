/** Light or dark: as the system wishes, until somebody chooses. The attribute of the page is the only switch. */

const CHOSEN = "quacklake.theme";
/** The event of the window that tells that colours have changed. */
export const THEME = "themechange";
const system = matchMedia("(prefers-color-scheme: dark)");

function show(): void {
  const chosen = localStorage.getItem(CHOSEN);
  document.documentElement.dataset["theme"] = chosen === "dark" || chosen === "light" ? chosen : system.matches ? "dark" : "light";
  dispatchEvent(new Event(THEME));
}

/** Show the theme, and follow the system. */
export function keepTheme(): void {
  show();
  system.addEventListener("change", show);
}

/** Change between light and dark, and remember it. */
export function changeTheme(): void {
  localStorage.setItem(CHOSEN, document.documentElement.dataset["theme"] === "dark" ? "light" : "dark");
  show();
}
