// The weights of a model: int8 matrices with one scale per row (checkpoint/quantization.py), the rest float32.
//
// A matrix is {rows: Int8Array, scales: Float32Array, numOut, numIn, bias: Float32Array or null}, and where the browser
// has WebAssembly SIMD also {kernel, place} (matrix_kernel.js).

const DTYPES = { int8: Int8Array, float32: Float32Array };
const SCALE_SUFFIX = "_scale";

export function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

// Arrays by name, as views of the bytes. `entries` is [{name, dtype, shape, offset}].
export function readTensors(entries, bytes) {
  const tensors = {};
  for (const { name, dtype, shape, offset } of entries) {
    const size = shape.reduce((product, length) => product * length, 1);
    tensors[name] = new DTYPES[dtype](bytes.buffer, bytes.byteOffset + offset, size);
  }
  return tensors;
}

export function takeMatrix(tensors, name) {
  const rows = tensors[`${name}.weight`];
  const scales = tensors[`${name}.weight${SCALE_SUFFIX}`];
  if (!rows || !scales) throw new Error(`${name}: no int8 matrix with its scales`);
  const bias = tensors[`${name}.bias`] ?? null;
  return { rows, scales, bias, numOut: scales.length, numIn: rows.length / scales.length };
}

// y = x W^T + b for n vectors. [n, in] -> [n, out]
export function linear(x, n, matrix) {
  const { scales, bias, numOut } = matrix;
  const y = matrix.kernel ? matrix.kernel.multiply(x, n, matrix) : multiplyPlain(x, n, matrix);
  for (let row = 0; row < n; row++) {
    const start = row * numOut;
    if (bias) for (let out = 0; out < numOut; out++) y[start + out] = y[start + out] * scales[out] + bias[out];
    else for (let out = 0; out < numOut; out++) y[start + out] *= scales[out];
  }
  return y;
}

// The products without scales.
function multiplyPlain(x, n, { rows, numOut, numIn }) {
  const y = new Float32Array(n * numOut);
  let first = 0;
  for (; first + 4 <= n; first += 4) multiplyFour(x, y, first, rows, numIn, numOut);
  for (; first < n; first++) multiplyOne(x, y, first, rows, numIn, numOut);
  return y;
}

// Four vectors at a time: every weight is read and converted once for all of them.
function multiplyFour(x, y, first, rows, numIn, numOut) {
  const x0 = first * numIn;
  const x1 = x0 + numIn;
  const x2 = x1 + numIn;
  const x3 = x2 + numIn;
  for (let out = 0; out < numOut; out++) {
    const start = out * numIn;
    let [a, b, c, d] = [0, 0, 0, 0];
    for (let k = 0; k < numIn; k++) {
      const weight = rows[start + k];
      a += weight * x[x0 + k];
      b += weight * x[x1 + k];
      c += weight * x[x2 + k];
      d += weight * x[x3 + k];
    }
    const target = first * numOut + out;
    y[target] = a;
    y[target + numOut] = b;
    y[target + 2 * numOut] = c;
    y[target + 3 * numOut] = d;
  }
}

// One vector, four sums at a time: they do not wait for each other.
function multiplyOne(x, y, row, rows, numIn, numOut) {
  const x0 = row * numIn;
  const target = row * numOut;
  let out = 0;
  for (; out + 4 <= numOut; out += 4) {
    const start = out * numIn;
    let [a, b, c, d] = [0, 0, 0, 0];
    for (let k = 0; k < numIn; k++) {
      const value = x[x0 + k];
      const at = start + k;
      a += rows[at] * value;
      b += rows[at + numIn] * value;
      c += rows[at + 2 * numIn] * value;
      d += rows[at + 3 * numIn] * value;
    }
    y[target + out] = a;
    y[target + out + 1] = b;
    y[target + out + 2] = c;
    y[target + out + 3] = d;
  }
  for (; out < numOut; out++) {
    let sum = 0;
    for (let k = 0; k < numIn; k++) sum += rows[out * numIn + k] * x[x0 + k];
    y[target + out] = sum;
  }
}
