/** Return how many times are in each of the last minutes, the latest last. */
export function perMinute(times: readonly number[], now: number, minutes: number): number[] {
  const counts = new Array<number>(minutes).fill(0);
  for (const time of times) {
    const back = Math.floor(Math.max(0, now - time) / 60_000);
    if (back < minutes) counts[minutes - 1 - back]! += 1;
  }
  return counts;
}
