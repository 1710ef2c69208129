// A scene is a picture as plain shapes, which svg_renderer.js and canvas_renderer.js draw alike.
//
// It has a width, a height, a background, `marks` (lines, cells, values: many) and `labels` (tokens, titles: few).

export const FONT = "system-ui, 'Noto Sans KR', 'Noto Sans CJK KR', 'Apple SD Gothic Neo', 'Malgun Gothic', sans-serif";

const measuringContext = document.createElement("canvas").getContext("2d");

export function textWidth(text, size, bold = false) {
  measuringContext.font = `${bold ? "bold " : ""}${size}px ${FONT}`;
  return measuringContext.measureText(text).width;
}

// Shorten a text to a width, with an ellipsis. It fits in bold too, which a label becomes when it is pointed at.
export function truncateText(text, size, maxWidth) {
  if (textWidth(text, size, true) <= maxWidth) return text;
  const letters = [...text];
  while (letters.length > 1 && textWidth(letters.join("") + "…", size, true) > maxWidth) letters.pop();
  return letters.join("") + "…";
}

// Combine several scenes into one, from left to right.
export function joinScenes(scenes) {
  let x = 0;
  const marks = [];
  const labels = [];
  for (const scene of scenes) {
    const offset = x;
    const shift = (shape) =>
      shape.shape === "line"
        ? { ...shape, x1: shape.x1 + offset, x2: shape.x2 + offset }
        : { ...shape, x: shape.x + offset };
    marks.push(...scene.marks.map(shift));
    labels.push(...scene.labels.map(shift));
    x += scene.width + 20;
  }
  return {
    width: x - 20,
    height: Math.max(...scenes.map((scene) => scene.height)),
    marks,
    labels,
    background: scenes[0].background,
  };
}
