// Numbers as the module `text` writes them: a test holds the two to the same texts.
const MISSING = "–";
const SCALES = {
  "ns": [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  "byte": [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
  "byte/s": [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]],
  "flop": [[1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"], [1, "FLOP"]],
  "flop/s": [[1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1e3, "kFLOP/s"], [1, "FLOP/s"]],
  "hz": [[1e9, "GHz"], [1e6, "MHz"], [1e3, "kHz"], [1, "Hz"]],
};

// toFixed rounds a tie away from zero, Python to the even digit. A tie is one only where the number is exact in binary.
const fixed = (value, digits) => {
  const scaled = value * 10 ** digits, whole = Math.floor(scaled);
  const even = scaled - whole === 0.5 && Number.isInteger(value * 2 ** (digits + 1)) && (whole / 10 ** digits).toFixed(digits);
  return even && whole % 2 === 0 ? even : value.toFixed(digits);
};

// Four digits, as %.4g.
const digits4 = (value) => {
  if (value === 0) return "0";
  const power = Math.floor(Math.log10(Math.abs(value)) + 1e-12);
  if (power < -4 || power >= 4) {
    const [head, tail] = value.toExponential(3).split("e"), size = Math.abs(Number(tail));
    if (Number(tail) < -4 || Number(tail) >= 4) {
      return `${Number(head)}e${tail.startsWith("-") ? "-" : "+"}${String(size).padStart(2, "0")}`;
    }
  }
  return String(Number(fixed(value, Math.max(3 - power, 0))));
};

const grouped = (value, digits = 0) => {
  const [whole, rest] = fixed(Math.abs(value), digits).split(".");
  return `${value < 0 ? "-" : ""}${whole.replace(/\B(?=(\d{3})+$)/g, ",")}${rest ? `.${rest}` : ""}`;
};

const percent = (share) => {
  const shown = share * 100;
  if (shown !== 0 && Math.abs(shown) < 0.01) {
    return shown > 0 ? "< 0.01 %" : `${shown.toExponential(1).replace(/e([+-])(\d)$/, "e$10$2")} %`;
  }
  const nearAnEnd = Math.abs(shown) < 1 || (shown >= 99.9 && shown < 100);
  return `${fixed(shown, nearAnEnd && shown !== 0 ? 2 : 1)} %`;
};

const show = (value, unit = "") => {
  if (value === null || value === undefined || value === "") return MISSING;
  if (typeof value !== "number") return String(value);
  if (Math.abs(value) >= 1e308) return value > 0 ? "∞" : "−∞";
  if (SCALES[unit]) {
    const [factor, name] = SCALES[unit].find(([size]) => Math.abs(value) >= size) ?? SCALES[unit].at(-1);
    return `${digits4(value / factor)} ${name}`;
  }
  if (unit === "frac") return percent(value);
  if (unit === "ratio") return Math.abs(value) < 10 ? `${fixed(value, 2)}×` : `${grouped(value, 1)}×`;
  const tail = unit === "flop/byte" ? " FLOP/byte" : "";
  if (Number.isInteger(value)) return grouped(value) + tail;
  return (Math.abs(value) >= 1e4 ? grouped(value) : digits4(value)) + tail;
};

// A cell as the reader sees it; a mark behind what lies below its minimum.
const shown = (column, value) => {
  if (column.name === "measured_over_minimum" && typeof value === "number" && Number(fixed(value, 2)) < 1) {
    return `${show(value, "ratio")} †`;
  }
  return show(value, column.unit);
};

const escaped = (value) => {
  const plain = String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  return plain.replace(/[\\`*|[\]~$!#]/g, "\\$&").replace(/(?<![\p{L}\p{N}])_+|_+(?![\p{L}\p{N}])/gu, (found) => "\\_".repeat(found.length));
};
const markdownTable = (heads, rows) => [heads, heads.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");
