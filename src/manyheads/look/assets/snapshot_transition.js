// While training is played, a picture changes smoothly from one snapshot to the next.

const MILLISECONDS = 600; // shorter than a snapshot is shown
const MAX_WEIGHTS = 4000; // of a picture: beyond it a frame takes too long

export class SnapshotTransition {
  // draw() draws the picture with the maps of map().
  constructor(maps, draw) {
    Object.assign(this, { maps, draw, share: 1 });
  }

  // From a snapshot to that of the state, of a picture with a number of weights.
  start(from, numWeights) {
    this.stop();
    if (numWeights > MAX_WEIGHTS || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    Object.assign(this, { from, share: 0 });
    const began = performance.now();
    const advance = (now) => {
      this.share = Math.min(1, Math.max(0, (now - began) / MILLISECONDS));
      this.draw();
      if (this.share < 1) this.frame = requestAnimationFrame(advance);
    };
    this.frame = requestAnimationFrame(advance);
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.share = 1;
  }

  // A head in the snapshot of the state, or on the way to it.
  map(state) {
    const target = this.maps.map(state);
    if (this.share === 1) return target;
    const { weights } = this.maps.map({ ...state, snapshot: this.from });
    return { ...target, weights: target.weights.map((weight, n) => weights[n] + this.share * (weight - weights[n])) };
  }
}
