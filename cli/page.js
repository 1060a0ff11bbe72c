'use strict';
// Makes tables sortable by a column; the number of a cell is in data-v.
for (const table of document.querySelectorAll('table.sorts')) {
  const heads = [...table.querySelectorAll('th')], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement('button'), text = head.classList.contains('text');
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const up = head.ariaSort ? head.ariaSort === 'descending' : text;
      const value = row => text ? row.cells[column].textContent : +row.cells[column].dataset.v;
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b), order = text ? x.localeCompare(y) : x - y;
        return up ? order : -order;
      });
      body.append(...rows);
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    });
  });
}
// Shows the bytes that are held at the position of the pointer.
const curve = JSON.parse(document.getElementById('curve').textContent);
const readout = document.querySelector('.readout');
readout.textContent = 'Point at the picture to read what a kernel holds.';
const bytes = v => {
  const unit = ['B', 'kB', 'MB', 'GB', 'TB'];
  let k = 0;
  for (; v >= 1000 && k < 4; k++) v /= 1000;
  return v.toFixed(k ? 2 : 0) + ' ' + unit[k];
};
for (const pane of document.querySelectorAll('.pane')) {
  const left = +pane.dataset.left, right = +pane.dataset.right, cursor = pane.querySelector('.cursor');
  pane.addEventListener('pointermove', event => {
    const box = pane.getBoundingClientRect(), x = (event.clientX - box.left) / box.width;
    const at = Math.floor((x - left) / (right - left) * curve.at.length), point = curve.at[at];
    cursor.style.display = point ? 'block' : 'none';
    if (!point) return;
    cursor.style.left = 100 * x + '%';
    const [step, name, all, ...held] = point, sum = held.reduce((a, b) => a + b, 0);
    const parts = curve.kinds.map((kind, k) => held[k] ? kind + ' ' + bytes(held[k]) : '').filter(Boolean);
    readout.textContent = step < 0 ? 'everything stored: ' + bytes(all) :
      'step ' + step + ', ' + name + ': ' + bytes(sum) + ' (' + parts.join(', ') + ')' +
      (all < 0 ? '' : '; everything stored: ' + bytes(all));
  });
  pane.addEventListener('pointerleave', () => { cursor.style.display = 'none'; });
}
