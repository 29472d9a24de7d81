"use strict";
// Loads the page again from time to time, and replaces the parts that change. Without it, the browser reloads the page.
(() => {
  const EVERY = 2000;
  const status = document.getElementById("live");
  const pause = document.getElementById("pause");
  let isPaused = false;
  const show = (text, isOff) => {
    // The text changes rarely, because screen readers read it aloud.
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("off", isOff);
  };
  const replace = (page) => {
    for (const own of document.querySelectorAll("[data-live]")) {
      const name = own.dataset.live;
      const other = page.querySelector(`[data-live="${CSS.escape(name)}"]`);
      if (!other || own.innerHTML === other.innerHTML) continue;
      // The part with the focus or a selection stays as it is until the user leaves it.
      if (own.contains(document.activeElement)) continue;
      const selection = getSelection();
      if (!selection.isCollapsed && own.contains(selection.anchorNode)) continue;
      own.replaceChildren(...document.importNode(other, true).childNodes);
    }
  };
  const update = async () => {
    if (isPaused || document.hidden) return;
    try {
      const response = await fetch(location.href, { cache: "no-store" });
      if (!response.ok) throw new Error(response.status);
      replace(new DOMParser().parseFromString(await response.text(), "text/html"));
      show("Live", false);
    } catch {
      show("Not up to date: the server does not respond", true);
    }
  };
  const next = () => setTimeout(async () => { await update(); next(); }, EVERY);
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Continue" : "Pause";
    show(isPaused ? "Paused" : "Live", false);
  });
  show("Live", false);
  next();
})();
