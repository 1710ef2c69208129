// Where numbers are in a chart: linear, logarithmic and time axes with round ticks, and how numbers are written.

const TIME_SPACINGS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const [MINUTE, HOUR] = [60, 3600]; // in seconds
const [MAX_TICKS, TICK_ROOM] = [5, 50]; // of a horizontal axis; the pixels of a label

export function formatNumber(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 0.001 && size < 1000) return String(Number(value.toPrecision(4)));
  const notation = size >= 1000 ? "compact" : "scientific";
  return Intl.NumberFormat("en", { notation, maximumSignificantDigits: 3 }).format(value);
}

// "45 s", "2 min", "1.5 h"
export function formatSeconds(seconds) {
  const [size, unit] = seconds >= HOUR ? [HOUR, "h"] : seconds >= MINUTE ? [MINUTE, "min"] : [1, "s"];
  return `${Number((seconds / size).toFixed(1))} ${unit}`;
}

// The axes of a chart: {position(x), ticks, format}. `range` is [first pixel, last pixel].
export function createStepAxis(values, range) {
  const [low, high] = findLimits(values);
  const ticks = roundTicks(low, high, countTicks(range)).filter((step) => step >= low && step <= high && Number.isInteger(step));
  const shown = ticks.length > 1 ? ticks : [...new Set([low, high])];
  return { position: createPosition(low, high, range), ticks: shown, format: (step) => step.toLocaleString("en") };
}

export function createTimeAxis(values, range) {
  const [low, high] = findLimits(values);
  const count = countTicks(range);
  const spacing = TIME_SPACINGS.find((size) => (high - low) / size <= count) ?? 86400 * Math.ceil((high - low) / 86400 / count);
  const ticks = [];
  for (let tick = Math.ceil(low / spacing) * spacing; tick <= high; tick += spacing) ticks.push(tick);
  return { position: createPosition(low, high, range), ticks, format: formatSeconds };
}

export function createLinearAxis(values, range) {
  const [least, most] = findLimits(values);
  const low = Math.min(0, least);
  const ticks = roundTicks(low, most === low ? low + 1 : most, 5);
  return { position: createPosition(low, Math.max(most, ticks.at(-1)), range), ticks, format: formatNumber };
}

export function createLogarithmicAxis(values, range) {
  const [low, high] = findLimits(values.filter((value) => value > 0));
  const position = createPosition(Math.log10(low), Math.log10(high), range);
  return { position: (value) => position(Math.log10(Math.max(value, low))), ticks: logarithmicTicks(low, high), format: formatNumber };
}

function countTicks([first, last]) {
  return Math.max(1, Math.min(MAX_TICKS, Math.floor((last - first) / TICK_ROOM)));
}

function findLimits(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
}

function createPosition(low, high, [first, last]) {
  return (value) => first + ((value - low) / (high - low || 1)) * (last - first);
}

// Round numbers; the last is not below `high`.
function roundTicks(low, high, maxCount) {
  const minSpacing = (high - low || 1) / maxCount;
  const power = 10 ** Math.floor(Math.log10(minSpacing));
  const spacing = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= minSpacing);
  const ticks = [];
  for (let n = Math.ceil(low / spacing); ; n++) {
    ticks.push(Number((n * spacing).toPrecision(12)));
    if (n * spacing >= high) return ticks;
  }
}

// 1, 2, 5, 10, ... in the range, or powers of ten where these are too many.
function logarithmicTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
    for (const factor of [1, 2, 5]) {
      const tick = Number((factor * 10 ** power).toPrecision(12));
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  if (ticks.length < 2) return [low, high];
  if (ticks.length <= 7) return ticks;
  const powers = ticks.filter((tick) => Number.isInteger(Math.round(1e9 * Math.log10(tick)) / 1e9));
  return powers.filter((_, n) => n % Math.ceil(powers.length / 6) === 0);
}
