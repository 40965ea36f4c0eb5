// Filters and sorts tables of class "explore". What it adds to the page is made here, so that
// without scripts nothing is shown that does not work.
'use strict';
const collator = new Intl.Collator('en', {numeric: true});
for (const table of document.querySelectorAll('table.explore')) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...body.rows];
  for (const row of rows)
    for (const cell of row.cells)
      if (cell.textContent !== '') cell.dataset.name = heads[cell.cellIndex].textContent;
  const words = (row, column) => row.cells[column] ? row.cells[column].textContent : '';

  const bar = document.createElement('p');
  bar.className = 'bar';
  const search = document.createElement('input');
  search.type = 'search';
  search.placeholder = 'filter: ' + heads[0].textContent + ' 3, 1-10, or text';
  search.setAttribute('aria-label', 'filter the rows');
  const count = document.createElement('span');
  count.className = 'soft small';
  count.setAttribute('role', 'status');
  const selects = [];
  for (const head of heads.filter((head) => head.classList.contains('pick'))) {
    const column = head.cellIndex;
    const values = [...new Set(rows.map((row) => words(row, column)))];
    if (values.length < 2) continue;
    const select = document.createElement('select');
    select.setAttribute('aria-label', 'filter by ' + head.textContent);
    for (const value of ['', ...values]) {
      const option = document.createElement('option');
      option.value = value;
      option.textContent = value === '' ? 'every ' + head.textContent : value;
      select.append(option);
    }
    selects.push({select, column});
  }
  bar.append(search, ...selects.map((one) => one.select), count);
  table.closest('.scroll').before(bar);

  // "3" and "1-10" are looked for in the first column, anything else in all columns.
  const matches = (row, query) => {
    const range = /^(\d+)(?:-(\d+))?$/.exec(query);
    if (!range) return row.textContent.toLowerCase().includes(query);
    const number = parseInt(words(row, 0), 10);
    return number >= Number(range[1]) && number <= Number(range[2] || range[1]);
  };
  const filter = () => {
    const query = search.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const picked = selects.every(
          ({select, column}) => select.value === '' || words(row, column) === select.value);
      row.hidden = !(picked && matches(row, query));
      if (!row.hidden) ++shown;
    }
    count.textContent = shown === rows.length ? '' : shown + ' of ' + rows.length;
  };
  bar.addEventListener('input', filter);

  table.classList.add('sorts');
  for (const head of heads) {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const column = head.cellIndex;
      const value = (row) => row.cells[column] ? row.cells[column].dataset.value : undefined;
      // What has no text comes last, up or down.
      rows.sort((a, b) => {
        const [x, y] = [words(a, column), words(b, column)];
        if (x === '' || y === '') return (x === '') - (y === '');
        const numbers = value(a) !== undefined && value(b) !== undefined;
        return (up ? 1 : -1) * (numbers ? value(a) - value(b) : collator.compare(x, y));
      });
      body.append(...rows);
    });
  }
}
