// An attention map as a small image.

// One pixel per weight, relative to the largest: a head that spreads its weight is visible too. The color is #rrggbb.
export function drawThumbnail(canvas, { rows, columns, weights }, color) {
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const channels = [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
  const max = weights.reduce((largest, weight) => Math.max(largest, weight), 1e-9);
  weights.forEach((weight, n) => image.data.set([...channels, Math.round((255 * weight) / max)], 4 * n));
  context.putImageData(image, 0, 0);
}
