// Charts of a pond: zoomable, without any other file but their tiles. Works from file:// and from any web server.
"use strict";
(() => {
  const PAD = {left: 60, right: 14, top: 10, bottom: 24};
  const DAY = 864e5;
  const waiting = new Map(), known = new Map();
  const span = level => 1024 * 4 ** level;

  // A tile is a script that calls this: fetch is not allowed in pages that are opened as files.
  window.pondTile = (key, data) => {
    const slash = key.lastIndexOf("/"), tile = Number(key.slice(slash + 1));
    const level = Number(key.slice(key.lastIndexOf("/", slash - 1) + 1, slash));
    const lines = data.map(([times, values]) => {
      const parts = new Uint32Array(bytes(times)), v = new Float32Array(bytes(values));
      const t = new Float64Array(parts.length), size = span(level);
      for (let n = 0; n < t.length; n++) t[n] = (tile + parts[n] / 2 ** 32) * size;
      return {t, v};
    });
    known.set(key, lines);
    if (known.size > 200) known.delete(known.keys().next().value);
    (waiting.get(key) || []).forEach(done => done(lines));
    waiting.delete(key);
  };

  function bytes(text) {
    const letters = atob(text), found = new Uint8Array(letters.length);
    for (let n = 0; n < letters.length; n++) found[n] = letters.charCodeAt(n);
    return found.buffer;
  }

  function load(key, base) {
    if (known.has(key)) return Promise.resolve(known.get(key));
    return new Promise((done, failed) => {
      if (waiting.has(key)) { waiting.get(key).push(done); return; }
      waiting.set(key, [done]);
      const script = document.createElement("script");
      script.src = base + key + ".js";
      script.onload = () => script.remove();
      script.onerror = () => { waiting.delete(key); failed(new Error(key)); };
      document.head.append(script);
    });
  }

  const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
    1209600].map(s => s * 1000);
  const two = n => String(n).padStart(2, "0");

  function timeTicks(a, b, most) {
    const step = STEPS.find(s => s >= (b - a) / most), found = [];
    if (step) {
      const base = step % 6048e5 ? 0 : 4 * DAY;
      for (let t = Math.ceil((a - base) / step) * step + base; t <= b; t += step) {
        const d = new Date(t), day = `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`;
        const clock = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
        found.push([t, step >= DAY || t % DAY === 0 ? day : step < 6e4 ? `${clock}:${two(d.getUTCSeconds())}` : clock]);
      }
      return found;
    }
    const months = [1, 2, 3, 6, 12, 24, 60, 120, 240].find(m => m * 30.4 * DAY >= (b - a) / most) || 600;
    const first = new Date(a);
    let month = Math.floor((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months;
    for (;; month += months) {
      const t = Date.UTC(Math.floor(month / 12), month % 12, 1);
      if (t > b) return found;
      const year = Math.floor(month / 12);
      if (t >= a) found.push([t, months < 12 ? `${year}-${two(month % 12 + 1)}` : String(year)]);
    }
  }

  function valueTicks(low, high, most) {
    const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw)), found = [];
    const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
    for (let n = Math.ceil(low / step - 1e-9); n <= high / step + 1e-9; n++) found.push(Number((n * step).toPrecision(12)));
    return found;
  }

  const number = v => String(Number(v.toPrecision(6)));
  const moment = t => new Date(t).toISOString().replace("T", " ").replace(/(\.000)?Z$/, " UTC");

  class Chart {
    constructor(element) {
      this.element = element;
      this.about = JSON.parse(element.querySelector("script").textContent);
      const {start, end, root, levels} = this.about;
      this.sets = Object.fromEntries(Object.entries(levels).map(([level, tiles]) => [level, new Set(tiles)]));
      this.finest = Math.min(...Object.keys(levels).map(Number), root);
      this.full = [start, Math.max(end, start + 1000)];
      this.home = this.about.range ? [Math.max(start, this.full[1] - this.about.range), this.full[1]] : this.full;
      this.view = [...this.home];
      this.hidden = new Set();
      this.drawn = [];
      this.canvas = document.createElement("canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", `${this.about.title}: arrows move, plus and minus zoom, 0 shows all`);
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      this.caption = document.createElement("div");
      this.caption.className = "caption";
      this.element.append(this.bar(), this.canvas, this.tip, this.caption);
      this.listen();
      new ResizeObserver(() => this.draw()).observe(this.canvas);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
      addEventListener("beforeprint", () => this.draw(true));
      addEventListener("afterprint", () => this.draw());
      this.show();
    }

    bar() {
      const bar = document.createElement("div");
      bar.className = "bar";
      this.about.lines.forEach((label, n) => {
        const box = document.createElement("button");
        box.type = "button";
        box.className = `series s${n % 8}`;
        box.textContent = label;
        box.setAttribute("aria-pressed", "true");
        box.onclick = () => {
          if (!this.hidden.delete(n)) this.hidden.add(n);
          box.setAttribute("aria-pressed", String(!this.hidden.has(n)));
          this.draw();
        };
        bar.append(box);
      });
      for (const [text, title, act] of [["−", "Zoom out", () => this.zoom(2)], ["+", "Zoom in", () => this.zoom(0.5)],
        ["All", "Show everything", () => this.go(...this.full)]]) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = text;
        button.title = title;
        button.onclick = act;
        bar.append(button);
      }
      return bar;
    }

    listen() {
      const canvas = this.canvas, at = e => (e.offsetX - PAD.left) / this.inner();
      const pointers = new Map();
      let last = null;
      canvas.addEventListener("wheel", e => {
        e.preventDefault();
        if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX / this.inner());
        else this.zoom(2 ** (e.deltaY / 200), at(e));
      }, {passive: false});
      canvas.addEventListener("pointerdown", e => { canvas.setPointerCapture(e.pointerId); pointers.set(e.pointerId, e); last = null; });
      canvas.addEventListener("pointermove", e => {
        if (!pointers.has(e.pointerId)) { this.hover(e); return; }
        pointers.set(e.pointerId, e);
        const all = [...pointers.values()], x = all.reduce((sum, p) => sum + p.offsetX, 0) / all.length;
        const far = all.length > 1 ? Math.abs(all[0].offsetX - all[1].offsetX) : 0;
        if (last && last.count === all.length) {
          if (far && last.far) this.zoom(last.far / far, (x - PAD.left) / this.inner());
          this.pan((last.x - x) / this.inner());
        }
        last = {x, far, count: all.length};
      });
      for (const kind of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(kind, e => {
        pointers.delete(e.pointerId);
        last = null;
        if (kind === "pointerleave") { this.tip.hidden = true; this.draw(); }
      });
      canvas.addEventListener("dblclick", e => this.zoom(0.25, at(e)));
      canvas.addEventListener("keydown", e => {
        const act = {ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.5),
          "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.go(...this.full)}[e.key];
        if (act) { e.preventDefault(); act(); }
      });
    }

    inner() { return Math.max(this.canvas.clientWidth - PAD.left - PAD.right, 10); }
    pan(share) { const [a, b] = this.view, by = (b - a) * share; return this.go(a + by, b + by); }
    zoom(factor, share = 0.5) { const [a, b] = this.view, t = a + (b - a) * share; return this.go(t - (t - a) * factor, t + (b - t) * factor); }

    go(a, b) {
      const most = this.full[1] - this.full[0], size = Math.min(Math.max(b - a, 10), most * 1.1);
      const middle = Math.min(Math.max((a + b) / 2, this.full[0]), this.full[1]);
      this.view = [middle - size / 2, middle + size / 2];
      return this.show();
    }

    // The tiles of a range: of the finest level at which two of them cover it, or of a coarser one that has all readings.
    tiles() {
      const [a, b] = this.view, {root} = this.about;
      let level = this.finest;
      while (level < root && span(level) < b - a) level++;
      const found = new Set();
      for (let tile = Math.floor(a / span(level)); tile <= Math.floor(b / span(level)); tile++) {
        let l = level, n = tile;
        // a tile whose neighbours below the same coarser one are there has no readings
        const empty = () => [0, 1, 2, 3].some(k => this.sets[l]?.has(Math.floor(n / 4) * 4 + k));
        while (l < root && !this.sets[l]?.has(n) && !empty()) { l++; n = Math.floor(n / 4); }
        if (this.sets[l]?.has(n)) found.add(`${this.about.id}/${l}/${n}`);
      }
      return [...found].sort((x, y) => this.begin(x) - this.begin(y));
    }

    begin(key) { const [level, tile] = key.split("/").slice(-2).map(Number); return tile * span(level); }

    show() {
      const started = performance.now(), keys = this.tiles(), turn = this.turn = (this.turn || 0) + 1;
      this.element.dataset.files = keys.length;
      if (keys.every(key => known.has(key))) { this.take(keys, started); return Promise.resolve(); }
      this.draw();
      return Promise.all(keys.map(key => load(key, this.about.base))).then(() => {
        if (turn === this.turn) this.take(keys, started);
      }, error => { this.caption.textContent = `the tile ${error.message} cannot be loaded`; });
    }

    take(keys, started) {
      this.drawn = this.about.lines.map((_, n) => join(keys.map(key => known.get(key)[n])));
      this.draw();
      this.element.dataset.step = (performance.now() - started).toFixed(1);
      if (!this.element.dataset.painted) {
        // after the next frame the picture is on the screen
        requestAnimationFrame(() => { this.element.dataset.painted = performance.now().toFixed(1); });
      }
    }

    draw(paper = false) {
      const {canvas} = this, ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
      if (!width) return;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const pen = canvas.getContext("2d"), style = getComputedStyle(this.element);
      const ink = paper ? "#000" : style.getPropertyValue("--ink"), faint = paper ? "#ccc" : style.getPropertyValue("--faint");
      pen.scale(ratio, ratio);
      pen.font = "12px system-ui, sans-serif";
      const [a, b] = this.view, x = t => PAD.left + (t - a) / (b - a) * this.inner();
      const [low, high] = this.scale(), bottom = height - PAD.bottom;
      const y = v => bottom - (v - low) / (high - low) * (bottom - PAD.top);
      pen.strokeStyle = faint;
      pen.fillStyle = ink;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const v of valueTicks(low, high, Math.max(height / 50, 2))) {
        pen.moveTo(PAD.left, y(v)); pen.lineTo(width - PAD.right, y(v));
        pen.fillText(number(v), PAD.left - 6, y(v));
      }
      pen.textAlign = "center";
      pen.textBaseline = "top";
      for (const [t, text] of timeTicks(a, b, Math.max(this.inner() / 110, 1))) {
        pen.moveTo(x(t), PAD.top); pen.lineTo(x(t), bottom);
        pen.fillText(text, Math.min(Math.max(x(t), 32), width - 32), bottom + 6);
      }
      pen.stroke();
      pen.save();
      pen.beginPath();
      pen.rect(PAD.left, 0, this.inner(), height);
      pen.clip();
      this.drawn.forEach(({t, v}, n) => {
        if (this.hidden.has(n)) return;
        pen.strokeStyle = paper ? ["#0a6fb8", "#b8500a", "#2a7d2a", "#7a3fa0"][n % 4] : style.getPropertyValue(`--s${n % 8}`);
        pen.lineWidth = 1.4;
        pen.lineJoin = "round";
        pen.beginPath();
        const [first, last] = [Math.max(bound(t, a) - 1, 0), Math.min(bound(t, b) + 1, t.length)];
        let down = false;
        for (let i = first; i < last; i++) {
          if (Number.isNaN(v[i])) { down = false; continue; }
          if (down) pen.lineTo(x(t[i]), y(v[i]));
          else { pen.moveTo(x(t[i]) - 0.5, y(v[i])); pen.lineTo(x(t[i]), y(v[i])); }
          down = true;
        }
        pen.stroke();
      });
      pen.restore();
      this.caption.textContent = this.drawn.some(each => each.t.length) ? `${moment(Math.round(a))} – ${moment(Math.round(b))}` : "no readings";
    }

    scale() {
      let low = Infinity, high = -Infinity;
      this.drawn.forEach(({t, v}, n) => {
        if (this.hidden.has(n)) return;
        for (let i = Math.max(bound(t, this.view[0]) - 1, 0); i < Math.min(bound(t, this.view[1]) + 1, t.length); i++) {
          if (v[i] < low) low = v[i];
          if (v[i] > high) high = v[i];
        }
      });
      if (low > high) return [0, 1];
      const room = (high - low) * 0.04 || Math.abs(low) * 0.05 || 1;
      return [low - room, high + room];
    }

    hover(e) {
      const share = (e.offsetX - PAD.left) / this.inner(), [a, b] = this.view, at = a + (b - a) * share;
      const words = [];
      this.drawn.forEach(({t, v}, n) => {
        if (this.hidden.has(n) || !t.length) return;
        let i = Math.min(bound(t, at), t.length - 1);
        if (i > 0 && at - t[i - 1] < t[i] - at) i--;
        if (!Number.isNaN(v[i]) && Math.abs(t[i] - at) < (b - a) / 40) words.push(`${this.about.lines[n]}: ${number(v[i])} (${moment(Math.round(t[i]))})`);
      });
      this.tip.hidden = !words.length;
      this.tip.textContent = words.join("\n");
      this.tip.style.left = `${Math.min(e.offsetX + 12, this.canvas.clientWidth - 180)}px`;
    }
  }

  function join(parts) {
    if (parts.length === 1) return parts[0];
    const size = parts.reduce((sum, part) => sum + part.t.length, 0), t = new Float64Array(size), v = new Float32Array(size);
    let at = 0;
    for (const part of parts) { t.set(part.t, at); v.set(part.v, at); at += part.t.length; }
    return {t, v};
  }

  // The first point that is not before a time.
  function bound(t, wanted) {
    let low = 0, high = t.length;
    while (low < high) { const middle = (low + high) >> 1; if (t[middle] < wanted) low = middle + 1; else high = middle; }
    return low;
  }

  const begin = () => { window.pondCharts = [...document.querySelectorAll(".chart")].map(each => new Chart(each)); };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin); else begin();
})();
