// Where numbers are in a chart: linear, logarithmic and time axes with round ticks, and how numbers are written.

const TIME_SPACINGS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const [MINUTE, HOUR] = [60, 3600]; // in seconds
const MAX_TICKS = 5; // of a horizontal axis
const [DIGIT_WIDTH, LABEL_GAP] = [7, 12]; // pixels of its labels

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

// The axes of a chart: {position(x), ticks, format}. `range` is [first pixel, last pixel]. A horizontal one also has
// formatTick, for its labels, and `end`, its last place, unless a tick is too near.
export function createStepAxis(values, range) {
  const [low, high] = findLimits(values);
  const powers = Array.from({ length: 15 }, (_, n) => 10 ** n);
  const spacings = powers.flatMap((power) => [power, 2 * power, 5 * power]);
  const ticks = spaceTicks(low, high, spacings, range, formatNumber);
  const shown = ticks.length > 1 ? ticks : [...new Set([low, high])];
  const position = createPosition(low, high, range);
  const end = findEnd(high, shown, position, formatNumber);
  return { position, ticks: shown, end, format: (step) => step.toLocaleString("en"), formatTick: formatNumber };
}

export function createTimeAxis(values, range) {
  const [low, high] = findLimits(values);
  const days = Array.from({ length: 12 }, (_, n) => 2 * 86400 * 2 ** n);
  const ticks = spaceTicks(low, high, [...TIME_SPACINGS, ...days], range, formatSeconds);
  const position = createPosition(low, high, range);
  const end = findEnd(high, ticks, position, formatSeconds);
  return { position, ticks, end, format: formatSeconds, formatTick: formatSeconds };
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

// The multiples of the smallest spacing whose labels have room, at most MAX_TICKS.
function spaceTicks(low, high, spacings, [first, last], format) {
  const pixels = (last - first) / (high - low || 1);
  const list = (spacing) => {
    const count = Math.floor(high / spacing) - Math.ceil(low / spacing) + 1;
    return Array.from({ length: Math.max(0, Math.min(count, MAX_TICKS + 1)) }, (_, n) => (Math.ceil(low / spacing) + n) * spacing);
  };
  const fits = (spacing) => {
    const ticks = list(spacing);
    const room = DIGIT_WIDTH * Math.max(0, ...ticks.map((tick) => format(tick).length)) + LABEL_GAP;
    return ticks.length <= MAX_TICKS && spacing * pixels >= room;
  };
  return list(spacings.find(fits) ?? spacings.at(-1));
}

// The last place as a list, empty where its label has no room beside that of the last tick.
function findEnd(high, ticks, position, format) {
  if (!ticks.length) return [high];
  const last = ticks.at(-1);
  const room = (DIGIT_WIDTH * (format(last).length + format(high).length)) / 2 + LABEL_GAP;
  return position(high) - position(last) < room ? [] : [high];
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
