/** The partitions of files, as a person reads them. */

import type { DataFile } from "./types.ts";

type Parted = Pick<DataFile, "partition" | "file_size_bytes">;

/** Return the partition of a file as its values. */
export function partitionOf(file: Parted): string {
  return file.partition.length ? file.partition.map((value) => value ?? "NULL").join(", ") : "no partition";
}

/** Return the partitions of files, those with most bytes first. */
export function partitionsOf(files: readonly Parted[]): string[] {
  const sizes = new Map<string, number>();
  for (const file of files) sizes.set(partitionOf(file), (sizes.get(partitionOf(file)) ?? 0) + file.file_size_bytes);
  return [...sizes].sort(([one, least], [other, most]) => most - least || one.localeCompare(other)).map(([name]) => name);
}
