// A page that is opened from a folder may not read the search's index.
if (location.protocol === 'file:') {
  for (const box of document.querySelectorAll('[role=search]')) box.hidden = true;
}
