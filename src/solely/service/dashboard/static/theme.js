// Runs before the page is painted, so that the chosen colours do not flash.
"use strict";
try {
  const chosen = localStorage.getItem("solely-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* no storage: as the system has it */ }
