/** Scrolling through more rows than a browser can make a page high. */

export const ROW = 30;
/** Browsers cut elements off somewhere above 16 million pixels. */
export const HIGHEST = 8_000_000;

export interface Place {
  /** Pixels from the first row, as if the page were as high as it must be. */
  top: number;
  /** What the browser says. */
  scrolled: number;
}

/** Return the height of the page for so many rows. */
export function pageHeight(rows: number): number {
  return Math.min(rows * ROW, HIGHEST);
}

/**
 * Return where a scroll leads. Small steps are small also in a page that is not as high as its rows; a long way is a
 * share of all rows; both ends are the ends.
 */
export function scrolledTo(before: Place, scrolled: number, rows: number, view: number): Place {
  const longest = Math.max(0, pageHeight(rows) - view);
  const most = Math.max(0, rows * ROW - view);
  if (longest === most) return { top: Math.min(scrolled, most), scrolled };
  if (scrolled <= 0) return { top: 0, scrolled };
  if (scrolled >= longest - 1) return { top: most, scrolled };
  const step = scrolled - before.scrolled;
  const top = Math.abs(step) <= 2 * view ? before.top + step : (scrolled / longest) * most;
  return { top: Math.max(0, Math.min(most, top)), scrolled };
}

/** Return the row that a key leads to, or null for a key that leads to none. `page` is how many rows are in sight. */
export function moved(current: number | null, key: string, rows: number, page: number): number | null {
  const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
  if (!rows) return null;
  if (key === "Home") return 0;
  if (key === "End") return rows - 1;
  const step = steps[key];
  if (step === undefined) return null;
  return current === null ? 0 : Math.max(0, Math.min(rows - 1, current + step));
}
