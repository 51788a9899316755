/** A squarified treemap (Bruls, Huizing, van Wijk): areas in proportion, and no rectangle thinner than it must be. */

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

function worst(areas: readonly number[], side: number): number {
  const sum = areas.reduce((total, area) => total + area, 0);
  const most = Math.max(...areas);
  const least = Math.min(...areas);
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}

/** Return a box for each weight, in their order; weights are positive and fall. */
export function treemap(weights: readonly number[], width: number, height: number): Box[] {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  if (!(total > 0) || !(width > 0) || !(height > 0)) return weights.map(() => ({ x: 0, y: 0, width: 0, height: 0 }));
  const scale = (width * height) / total;
  const boxes: Box[] = [];
  let free: Box = { x: 0, y: 0, width, height };
  let row: number[] = [];
  const lay = () => {
    const sum = row.reduce((all, area) => all + area, 0);
    const upright = free.width >= free.height;
    const thick = sum / (upright ? free.height : free.width);
    let along = upright ? free.y : free.x;
    for (const area of row) {
      const long = area / thick;
      boxes.push(upright ? { x: free.x, y: along, width: thick, height: long } : { x: along, y: free.y, width: long, height: thick });
      along += long;
    }
    free = upright
      ? { x: free.x + thick, y: free.y, width: Math.max(0, free.width - thick), height: free.height }
      : { x: free.x, y: free.y + thick, width: free.width, height: Math.max(0, free.height - thick) };
    row = [];
  };
  for (const weight of weights) {
    const area = Math.max(weight * scale, 1e-9);
    const side = Math.min(free.width, free.height);
    if (row.length && worst([...row, area], side) > worst(row, side)) lay();
    row.push(area);
  }
  if (row.length) lay();
  return boxes;
}
