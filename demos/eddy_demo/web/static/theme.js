// Before anything is painted: the theme that was chosen here, if one was.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is switched off: the system's theme it is.
}
