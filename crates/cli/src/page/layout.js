"use strict";
// What is wrong with the page in each frame, one fault a line, after how many texts were looked at.
const all = [];
let texts = 0;
const look = (frame) => {
  const page = frame.contentDocument;
  const faults = [];
  const wide = page.documentElement.clientWidth;
  const whole = page.documentElement.scrollWidth;
  if (whole > wide) faults.push(`the page is ${whole} pixels wide, of ${wide}`);
  for (const table of page.querySelectorAll("table")) {
    const room = table.parentElement.clientWidth;
    const taken = table.scrollWidth;
    if (taken > room + 1) faults.push(`a table is ${taken} pixels wide, of ${room}`);
  }
  for (const picture of page.querySelectorAll("svg")) {
    const box = picture.getBoundingClientRect();
    const seen = [];
    for (const text of picture.querySelectorAll("text")) {
      texts += 1;
      const at = text.getBoundingClientRect();
      const words = text.textContent;
      if (at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1 || at.bottom > box.bottom + 1) {
        faults.push(`${words} is cut`);
      }
      for (const [other, place] of seen) {
        // Boxes have room above and below the letters.
        if (at.left < place.right && place.left < at.right && at.top + 3 < place.bottom && place.top + 3 < at.bottom) {
          faults.push(`${other} lies on ${words}`);
        }
      }
      seen.push([words, at]);
    }
    for (const line of picture.querySelectorAll("line")) {
      const at = line.getBoundingClientRect();
      for (const [words, place] of seen) {
        if (at.left < place.right - 1 && place.left + 1 < at.right && at.top < place.bottom - 3 && place.top + 3 < at.bottom) {
          faults.push(`a line goes through ${words}`);
        }
      }
    }
  }
  all.push(...faults.map((fault) => `${frame.width} pixels: ${fault}`));
};
window.addEventListener("load", () => {
  document.querySelectorAll("iframe").forEach(look);
  document.getElementById("told").textContent = [`measured ${texts}`, ...all].join("\n");
});
