/** Amounts and addresses of blockchains as people read them. */

/** Return an amount of the smallest unit in whole coins, without losing a digit: 1500000000000000000 is 1.5. */
export function coins(value: string, digits = 18, shown = 6): string {
  if (!/^\d+$/.test(value)) return value;
  const padded = value.padStart(digits + 1, "0");
  const whole = padded.slice(0, -digits).replace(/\B(?=(\d{3})+$)/g, ",");
  const rest = padded.slice(-digits).replace(/0+$/, "");
  if (!rest) return whole;
  const cut = rest.slice(0, shown).replace(/0+$/, "");
  if (!cut && whole === "0") return `< 0.${"0".repeat(shown - 1)}1`;
  return cut ? `${whole}.${cut}` : whole;
}

/** Return the ends of an address or a hash, as far as one recognises it by. */
export function short(text: string): string {
  return text.length > 16 ? `${text.slice(0, 8)}…${text.slice(-6)}` : text;
}

export interface Filter {
  kind: string;
  network: string;
  search: string;
  wallet: string;
  from: string;
  to: string;
  limit: number;
  page: number;
  at: number | null;
}

export const SIZES = [20, 50, 100];
export const KINDS = [
  { id: "all", label: "All" },
  { id: "transfer", label: "Transfers" },
  { id: "contract_call", label: "Calls" },
  { id: "contract_creation", label: "Creations" },
  { id: "failed", label: "Failed" },
];

/** Return the filter of an address; what cannot be is what is usual. */
export function filterOf(query: Record<string, string>, at: number | null): Filter {
  const number = (text: string | undefined, usual: number) => (text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : usual);
  const limit = number(query["size"], SIZES[0]!);
  return {
    kind: KINDS.some((each) => each.id === query["kind"]) ? query["kind"]! : "all",
    network: query["network"] ?? "",
    search: query["search"] ?? "",
    wallet: query["wallet"] ?? "",
    from: query["from"] ?? "",
    to: query["to"] ?? "",
    limit: SIZES.includes(limit) ? limit : SIZES[0]!,
    page: number(query["page"], 0),
    at,
  };
}

/** Return the parameters of a request for the transactions of a filter. */
export function asked(filter: Filter): Record<string, string | number | null> {
  const [network, subnet] = filter.network.split("/");
  return {
    networks: network || null,
    subnets: subnet ?? null,
    transaction_types: filter.kind === "all" || filter.kind === "failed" ? null : filter.kind,
    status: filter.kind === "failed" ? "failed" : null,
    search: filter.search.trim() || null,
    wallet_addresses: filter.wallet.trim() || null,
    from_date: filter.from || null,
    to_date: filter.to ? `${filter.to}T23:59:59.999999Z` : null,
    version: filter.at,
  };
}
