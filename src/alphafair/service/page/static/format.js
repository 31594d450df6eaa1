// Numbers, times and changes as text. One place, so that a number looks the same wherever it stands.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const dayOnly = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "long" });

export const NONE = "–";

export const integer = (value) => (value === null || value === undefined ? NONE : whole.format(value));

export const compact = (value) =>
  value === null || value === undefined ? NONE : value < 10000 ? whole.format(value) : short.format(value);

/** Three significant digits, without exponents where a person would write none. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size >= 1e6) return short.format(value).replace("-", "−");
  if (Number.isInteger(value)) return whole.format(value).replace("-", "−");
  if (size >= 1000) return whole.format(value).replace("-", "−");
  if (size !== 0 && size < 1e-4) return value.toExponential(1).replace("-", "−").replace("e−", "e−");
  const decimals = size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(decimals, 6)).replace("-", "−");
}

/** The shortest form of three digits: for axes and settings. */
export const plain = (value) =>
  (Math.abs(value) >= 10000 ? short.format(value) : String(Number(value.toPrecision(3)))).replace("-", "−");

export const fixed = (value, decimals) =>
  value === null || value === undefined ? NONE : value.toFixed(decimals).replace("-", "−");

export const percent = (value, decimals = 1) =>
  value === null || value === undefined ? NONE : `${(100 * value).toFixed(decimals).replace("-", "−")}%`;

export const alpha = (value) =>
  value === null || value === undefined ? NONE : value === "inf" || value === Infinity ? "∞" : String(value);

export const rate = (perSecond) =>
  perSecond >= 0.95 || perSecond === 0
    ? `${number(perSecond, 2)}/s`
    : perSecond * 60 >= 0.95
      ? `${number(60 * perSecond, 2)}/min`
      : `${number(3600 * perSecond, 2)}/h`;

// a unit in seconds, its name, and up to how many seconds it is used
const UNITS = [
  [1e-6, "µs", 1e-3],
  [1e-3, "ms", 1],
  [1, "s", 60],
  [60, "min", 3600],
  [3600, "h", 86400],
  [86400, "d", Infinity],
];

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const [unit, name] = UNITS.find(([, , below]) => seconds < below);
  return `${String(Number((seconds / unit).toPrecision(2)))} ${name}`;
}

/** Seconds since 1970, from a number or an ISO date. */
export const seconds = (at) => (typeof at === "string" ? Date.parse(at) / 1000 : at);

export const time = (at) => (at === null || at === undefined ? NONE : moment.format(1000 * seconds(at)));
/** The same in two parts: "18 Nov, " and "08:30:00". */
export const timeParts = (at) =>
  time(at)
    .match(/^(.*, )(.*)$/)
    ?.slice(1) ?? ["", time(at)];
/** To the minute. */
export const shortTime = (at) => time(at).replace(/:\d\d$/, "");
export const day = (at) => (at === null || at === undefined ? NONE : dayOnly.format(1000 * seconds(at)));
export const fullTime = (at) => (at === null || at === undefined ? NONE : full.format(1000 * seconds(at)));

export function ago(at, now) {
  if (at === null || at === undefined) return "never";
  const past = Math.max(0, now - seconds(at));
  if (past < 2) return "just now";
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return `${Math.floor(past / 86400)} d ago`;
}

export const plural = (count, one, many = `${one}s`) => `${integer(count)} ${count === 1 ? one : many}`;

/** A label inside a sentence: isolated, so that marks of direction in it do not turn the words around it. */
export const quoted = (text) => `‘\u2068${text}\u2069’`;

/** Words as a sentence. */
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** The value of a term: short, as a change of terms shows it. */
const termText = (value) =>
  value === null
    ? "to the default"
    : typeof value === "object"
      ? `of ${plural(Object.keys(value).length, "label")}`
      : `to ${value}`;

/** A change of an experiment as a sentence. */
export function change({ kind, details }) {
  const arm = quoted(details.arm ?? details.label ?? details.name ?? "?");
  switch (kind) {
    case "create":
      return "Created";
    case "set_alpha":
      return `α set to ${alpha(details.alpha)}`;
    case "add_arm":
      return details.group === undefined || details.group === null
        ? `Arm ${arm} added`
        : `Arm ${arm} added to ${quoted(String(details.group))}`;
    case "retire_arm":
      return `Arm ${arm} retired`;
    case "mask_arm":
      return `Arm ${arm} masked`;
    case "unmask_arm":
      return `Arm ${arm} unmasked`;
    case "new_period":
      return "New period";
    case "set_period":
      return details.period === null || details.period === undefined
        ? "Periods end by hand"
        : `Periods of ${duration(details.period)}`;
    case "terms":
      return `Terms: ${Object.entries(details.set ?? {})
        .map(([name, value]) => `${name.replaceAll("_", " ")} ${termText(value)}`)
        .join(", ")}`;
    case "pause":
      return "Paused";
    case "resume":
      return "Resumed";
    case "rollback":
      return `Rolled back to position ${integer(details.position ?? details.to ?? details.until ?? null)}`;
    case "erase":
      return "A context erased";
    case "upgrade":
      return "Kernels upgraded";
    default:
      return kind.replaceAll("_", " ");
  }
}
