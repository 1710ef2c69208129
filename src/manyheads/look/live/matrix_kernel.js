// Matrix products in WebAssembly SIMD, where the browser has it: int8 weights times float32 vectors.
//
// The module has one function, assembled here, so that the page needs no compiler and no other file:
//
//   multiply(x, w, y, n, numIn, numOut)    y [n, numOut] = x [n, numIn] w [numOut, numIn]^T, addresses in bytes
//
// numIn is a multiple of 8 and numOut of 4: rows are padded with zeros. Four outputs are summed at a time.

const PAGE_BYTES = 65536;
const [INPUT_MULTIPLE, OUTPUT_MULTIPLE] = [8, 4];

const roundUp = (number, multiple) => Math.ceil(number / multiple) * multiple;

// ---- assembly

const [I32, V128, EMPTY] = [0x7f, 0x7b, 0x40];
const [GET, SET, LOOP, END, BRANCH_IF, CONST, ADD, SUB, SHIFT_LEFT] = [0x20, 0x21, 0x03, 0x0b, 0x0d, 0x41, 0x6a, 0x6b, 0x74];
const [F32_ADD, F32_STORE, SIMD] = [0x92, 0x38, 0xfd];

const encodeNumber = (number) => (number < 128 ? [number] : [(number & 127) | 128, ...encodeNumber(number >> 7)]);
const simd = (opcode, ...operands) => [SIMD, ...encodeNumber(opcode), ...operands];
const get = (local) => [GET, local];
const set = (local, ...code) => [...code.flat(), SET, local];
const increase = (local, ...amount) => set(local, get(local), amount.flat(), [ADD]);
const constant = (number) => [CONST, number];
const section = (id, content) => [id, ...encodeNumber(content.length), ...content];
const text = (string) => [string.length, ...[...string].map((letter) => letter.charCodeAt(0))];

const [LOAD, LOAD_INT8, ZERO, LANE, F32X4_ADD, F32X4_MUL] = [0x00, 0x01, 0x0c, 0x1f, 0xe4, 0xe6];
const [EXTEND_LOW, EXTEND_HIGH, TO_FLOAT] = [0xa7, 0xa8, 0xfa];

// Locals: the parameters, then addresses, then vectors.
const [X, W, Y, N, NUM_IN, NUM_OUT, REMAINING, COLUMN, VECTOR, ROW_ADDRESS] = Array(10).keys();
const ROWS = [10, 11, 12, 13];
const SUMS = [14, 15, 16, 17];
const [LOW_HALF, HIGH_HALF, WEIGHTS] = [18, 19, 20];

function assembleKernel() {
  const product = (extend, half) => [
    ...[...get(WEIGHTS), ...simd(extend), ...simd(TO_FLOAT), ...get(half)],
    ...[...simd(F32X4_MUL), ...simd(F32X4_ADD)],
  ];
  const column = [
    ...set(LOW_HALF, get(VECTOR), simd(LOAD, 2, 0)),
    ...set(HIGH_HALF, get(VECTOR), simd(LOAD, 2, 16)),
    ...ROWS.flatMap((row, index) => [
      ...set(WEIGHTS, get(row), simd(LOAD_INT8, 0, 0)),
      ...set(SUMS[index], get(SUMS[index]), product(EXTEND_LOW, LOW_HALF), product(EXTEND_HIGH, HIGH_HALF)),
      ...increase(row, constant(INPUT_MULTIPLE)),
    ]),
    ...increase(VECTOR, constant(4 * INPUT_MULTIPLE)),
    ...set(COLUMN, get(COLUMN), constant(INPUT_MULTIPLE), [SUB]),
  ];
  const lanes = (sum) => [
    ...[...get(sum), ...simd(LANE, 0), ...get(sum), ...simd(LANE, 1), F32_ADD],
    ...[...get(sum), ...simd(LANE, 2), ...get(sum), ...simd(LANE, 3), F32_ADD, F32_ADD],
  ];
  const output = [
    ...SUMS.flatMap((sum) => set(sum, simd(ZERO, ...Array(16).fill(0)))),
    ...ROWS.flatMap((row) => [...set(row, get(ROW_ADDRESS)), ...increase(ROW_ADDRESS, get(NUM_IN))]),
    ...set(VECTOR, get(X)),
    ...set(COLUMN, get(NUM_IN)),
    ...[LOOP, EMPTY, ...column, ...get(COLUMN), BRANCH_IF, 0, END],
    ...SUMS.flatMap((sum, index) => [...get(Y), ...lanes(sum), F32_STORE, 2, 4 * index]),
    ...increase(Y, constant(4 * OUTPUT_MULTIPLE)),
    ...set(REMAINING, get(REMAINING), constant(OUTPUT_MULTIPLE), [SUB]),
  ];
  const vector = [
    ...set(ROW_ADDRESS, get(W)),
    ...set(REMAINING, get(NUM_OUT)),
    ...[LOOP, EMPTY, ...output, ...get(REMAINING), BRANCH_IF, 0, END],
    ...increase(X, get(NUM_IN), constant(2), [SHIFT_LEFT]),
    ...set(N, get(N), constant(1), [SUB]),
  ];
  const locals = [2, ROWS.length + 4, I32, SUMS.length + 3, V128];
  const body = [...locals, LOOP, EMPTY, ...vector, ...get(N), BRANCH_IF, 0, END, END];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [1, 0x60, 6, I32, I32, I32, I32, I32, I32, 0]),
    ...section(2, [1, ...text("page"), ...text("memory"), 2, 0, 1]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text("multiply"), 0, 0]),
    ...section(10, [1, ...encodeNumber(body.length), ...body]),
  ]);
}

// ---- memory: the matrices, then vectors that come and go

class MatrixKernel {
  constructor(matrices) {
    this.end = matrices.reduce((sum, { numIn, numOut }) => sum + padMatrix(numIn, numOut).bytes, 0);
    this.memory = new WebAssembly.Memory({ initial: Math.ceil(this.end / PAGE_BYTES) + 1 });
    const instance = new WebAssembly.Instance(new WebAssembly.Module(assembleKernel()), { page: { memory: this.memory } });
    this.run = instance.exports.multiply;
    const bytes = new Int8Array(this.memory.buffer);
    let address = 0;
    for (const matrix of matrices) {
      const { numIn, numOut, rows } = matrix;
      const padded = padMatrix(numIn, numOut);
      for (let out = 0; out < numOut; out++)
        bytes.set(rows.subarray(out * numIn, (out + 1) * numIn), address + out * padded.numIn);
      matrix.place = { ...padded, address };
      address += padded.bytes;
    }
  }

  // The products without scales. [n, in] -> [n, out]
  multiply(x, n, { numIn, numOut, place }) {
    const [start, output] = [this.end, this.end + 4 * n * place.numIn];
    const missing = output + 4 * n * place.numOut - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE_BYTES));
    const vectors = new Float32Array(this.memory.buffer, start, n * place.numIn);
    if (numIn === place.numIn) vectors.set(x.length === vectors.length ? x : x.subarray(0, vectors.length));
    else {
      vectors.fill(0);
      for (let row = 0; row < n; row++) vectors.set(x.subarray(row * numIn, (row + 1) * numIn), row * place.numIn);
    }
    this.run(start, place.address, output, n, place.numIn, place.numOut);
    const y = new Float32Array(n * numOut);
    for (let row = 0; row < n; row++)
      y.set(new Float32Array(this.memory.buffer, output + 4 * row * place.numOut, numOut), row * numOut);
    return y;
  }
}

function padMatrix(numIn, numOut) {
  const padded = { numIn: roundUp(numIn, INPUT_MULTIPLE), numOut: roundUp(numOut, OUTPUT_MULTIPLE) };
  return { ...padded, bytes: roundUp(padded.numIn * padded.numOut, 16) };
}

// Gives matrices a kernel, each once, unless the browser has no WebAssembly SIMD or does not allow it here.
export function attachKernel(matrices) {
  const unique = [...new Map(matrices.map((matrix) => [matrix.rows, matrix])).values()];
  try {
    const kernel = new MatrixKernel(unique);
    const places = new Map(unique.map(({ rows, place }) => [rows, place]));
    for (const matrix of matrices) Object.assign(matrix, { kernel, place: places.get(matrix.rows) });
    return true;
  } catch {
    return false;
  }
}
