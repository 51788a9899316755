/** How times are written below a chart: as everywhere in the dashboard, with 24 hours, and no day that could be a month. */

import type uPlot from "uplot";

const [MINUTE, HOUR, DAY] = [60, 3600, 86_400];
const DATE = "{D} {MMM}";
const YEARS = `\n${DATE} {YYYY}`;

/** For each step between ticks: what a tick says, and what is added at a new year and a new day. */
export const TICKS: uPlot.Axis.Values = [
  [365 * DAY, "{YYYY}", null, null, null, null, null, null, 1],
  [28 * DAY, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [DAY, DATE, "\n{YYYY}", null, null, null, null, null, 1],
  [HOUR, "{HH}:{mm}", YEARS, null, `\n${DATE}`, null, null, null, 1],
  [MINUTE, "{HH}:{mm}", YEARS, null, `\n${DATE}`, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", YEARS, null, `\n${DATE}`, null, null, null, 1],
  [0.001, ":{ss}.{fff}", `${YEARS} {HH}:{mm}`, null, `\n${DATE} {HH}:{mm}`, null, "\n{HH}:{mm}", null, 1],
];

/** What the legend says of a time. */
export const MOMENT = "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}";
