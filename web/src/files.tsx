/** The files of a table as a treemap: area is size, colour is what one asks for. */

import { useEffect, useRef, useState } from "preact/hooks";

import { get, tablePath } from "./api.ts";
import { bytes, count, counted } from "./format.ts";
import { useLoad, useSession } from "./hooks.ts";
import "./look.css";
import { partitionOf, partitionsOf } from "./partitions.ts";
import { treemap } from "./treemap.ts";
import type { DataFile, TableFacts } from "./types.ts";
import { Empty, Failure, Waiting } from "./ui.tsx";

const MOST = 2000;
const HEIGHT = 320;
const SMALL = 16 * 1024 * 1024;

/** Colours that can be told from each other; more partitions than these share them. */
const PARTITION_COLOURS = 8;

type Colour = "age" | "size" | "deletes" | "partition";

/** Return how strong the colour of a file is, from 0 to 1. */
export function strength(file: DataFile, colour: Exclude<Colour, "partition">, oldest: number, newest: number): number {
  if (colour === "size") return Math.min(1, file.file_size_bytes / SMALL);
  if (colour === "deletes") return file.record_count ? Math.min(1, (file.deleted_rows ?? 0) / file.record_count) : 0;
  return newest > oldest ? (file.begin_snapshot - oldest) / (newest - oldest) : 1;
}

const SAID: Record<Exclude<Colour, "partition">, [string, string]> = {
  age: ["oldest", "newest"],
  size: ["tiny", "16 MiB or more"],
  deletes: ["no row deleted", "all rows deleted"],
};

export function Files({ name, facts }: { name: string; facts: TableFacts }) {
  const { facts: who } = useSession();
  if (who.role === "reader" || facts.files === undefined)
    return <Empty title="Files are for writers.">Sign in with a token of the role writer or admin to see where the rows are.</Empty>;
  return <FileMap name={name} facts={facts} />;
}

function FileMap({ name, facts }: { name: string; facts: TableFacts }) {
  const found = useLoad(
    (signal) => get<{ files: DataFile[]; next: number | null }>(tablePath(name, "/files"), { version: facts.snapshot, limit: MOST }, signal),
    [name, facts.snapshot],
  );
  const [colour, setColour] = useState<Colour>("age");
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watched = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    if (frame.current) watched.observe(frame.current);
    return () => watched.disconnect();
  }, []);
  const files = [...(found.data?.files ?? [])].sort((one, other) => other.file_size_bytes - one.file_size_bytes);
  const boxes = treemap(files.map((file) => Math.max(1, file.file_size_bytes)), width, HEIGHT);
  const ids = files.map((file) => file.begin_snapshot);
  const [oldest, newest] = [Math.min(...ids), Math.max(...ids)];
  const inlined = facts.inlined_rows ?? 0;
  const parted = files.some((file) => file.partition.length > 0);
  const partitions = colour === "partition" ? partitionsOf(files) : [];
  const numbers = new Map(partitions.map((name, index) => [name, index % PARTITION_COLOURS]));
  return (
    <>
      <div class="bar">
        <span>
          {counted(facts.files ?? 0, "file")}, {bytes(facts.bytes ?? 0)}
          {inlined > 0 && <span class="dim"> and {counted(inlined, "row")} in the catalog</span>}
          {found.data?.next != null && <span class="dim"> (the first {count(MOST)} are shown)</span>}
        </span>
        <label class="inline">
          Colour
          <select value={colour} onChange={(event) => setColour(event.currentTarget.value as Colour)}>
            <option value="age">age</option>
            <option value="size">size</option>
            <option value="deletes">deletes</option>
            {parted && <option value="partition">partition</option>}
          </select>
        </label>
      </div>
      <div ref={frame} class="treemap" style={{ height: files.length || !found.data ? `${HEIGHT}px` : undefined }}>
        {found.error && <Failure error={found.error} again={found.again} />}
        {!found.data && !found.error && <Waiting lines={4} />}
        {found.data && files.length === 0 && (
          <Empty title="There are no files.">{inlined ? "All rows are in the catalog; maintenance will write them into files." : "The table is empty at this snapshot."}</Empty>
        )}
        {files.length > 0 && width > 0 && (
          <svg width={width} height={HEIGHT} role="img" aria-label={`${counted(files.length, "file")}, each as large as its size`} class={colour}>
            {files.map((file, index) => {
              const box = boxes[index]!;
              const weight = colour === "partition" ? 0 : strength(file, colour, oldest, newest);
              const shade = colour === "partition" ? `p${numbers.get(partitionOf(file))}` : `s${Math.round(weight * 4)}`;
              return (
                <g key={file.data_file_id} transform={`translate(${box.x} ${box.y})`}>
                  <rect width={Math.max(0, box.width - 2)} height={Math.max(0, box.height - 2)} rx={3} class={shade}>
                    <title>{`${file.path}\n${counted(file.record_count, "row")}, ${bytes(file.file_size_bytes)}, since snapshot ${file.begin_snapshot}${file.deleted_rows ? `, ${count(file.deleted_rows)} deleted` : ""}${file.partition.length ? `\n${partitionOf(file)}` : ""}`}</title>
                  </rect>
                  {box.width > 74 && box.height > 40 && (
                    <text x={10} y={21} class={weight > 0.6 ? "over" : ""}>
                      {bytes(file.file_size_bytes)}
                      <tspan x={10} dy={17} class="dim">
                        {box.width > 110 ? counted(file.record_count, "row") : count(file.record_count)}
                      </tspan>
                    </text>
                  )}
                </g>
              );
            })}
          </svg>
        )}
      </div>
      {files.length > 0 && colour === "partition" && (
        <ul class="legend partition" aria-label="Partitions">
          {partitions.slice(0, PARTITION_COLOURS).map((name, index) => (
            <li key={name}>
              <i class={`p${index}`} /> {name}
            </li>
          ))}
          {partitions.length > PARTITION_COLOURS && <li class="dim">and {count(partitions.length - PARTITION_COLOURS)} more, in the same colours</li>}
        </ul>
      )}
      {files.length > 0 && colour !== "partition" && (
        <p class={`legend ${colour}`}>
          {SAID[colour][0]}
          {[0, 1, 2, 3, 4].map((step) => (
            <i key={step} class={`s${step}`} />
          ))}
          {SAID[colour][1]}
        </p>
      )}
    </>
  );
}
