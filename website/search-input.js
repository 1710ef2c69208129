// The theme's search waits for keyup events. Text that is pasted with the mouse, dropped or dictated sends none.
document.addEventListener("input", ({target}) => {
  if (target.matches(".md-search__input")) target.dispatchEvent(new KeyboardEvent("keyup"));
});
