"use strict";

// Whac-A-Mole: choose study and binding; the text of a bar that is pointed at or touched appears below the figure.
{
  const study = document.getElementById("gap-study"), binding = document.getElementById("gap-binding");
  const figures = [...document.querySelectorAll("figure.moles")];
  const has = name => figures.some(figure => figure.dataset.study === study.value && figure.dataset.binding === name);
  const show = () => {
    for (const option of binding.options) option.disabled = !has(option.value);
    if (!has(binding.value)) binding.value = [...binding.options].find(option => !option.disabled).value;
    for (const figure of figures)
      figure.hidden = figure.dataset.study !== study.value || (figure.dataset.binding ?? binding.value) !== binding.value;
  };
  study?.addEventListener("change", show);
  binding?.addEventListener("change", show);
  for (const figure of document.querySelectorAll("figure.gap-bars")) {
    for (const kind of ["pointerover", "click"]) {
      figure.addEventListener(kind, event => {
        const tip = event.target.closest(".tip");
        if (tip) figure.querySelector(".told").textContent = tip.querySelector("title").textContent;
      });
    }
  }
}
