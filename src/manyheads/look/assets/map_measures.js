// The measures of look/measures.py for one map, where no Python computed them. A test compares the two.

// {entropy, diagonal, previous, edge}; `previous` is null where it is undefined.
export function measureMap({ rows, columns, weights }, attention) {
  const isCross = attention === "cross";
  const ratio = isCross ? (columns - 1) / Math.max(rows - 1, 1) : 1;
  const edgeColumn = attention === "decoder" ? 0 : columns - 1;
  let [entropy, diagonal, previous, edge] = [0, 0, 0, 0];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const weight = weights[row * columns + column];
      if (weight > 0) entropy -= weight * Math.log2(weight);
      if (Math.abs(column - ratio * row) <= 0.5) diagonal += weight;
      if (column === row - 1) previous += weight;
      if (column === edgeColumn) edge += weight;
    }
  }
  const hasPrevious = !isCross && rows > 1;
  return {
    entropy: entropy / rows,
    diagonal: diagonal / rows,
    previous: hasPrevious ? previous / (rows - 1) : null,
    edge: edge / rows,
  };
}
