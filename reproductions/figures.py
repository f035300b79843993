"""Figures of the documents, from matplotlib's SVG; scripts here and in `benchmarks` use it."""

from __future__ import annotations


def following_the_page(svg: str) -> str:
    """matplotlib's SVG without its white background, with text and axes in the colours of a light or a dark page."""
    rule = "svg{color:#222;fill:currentColor}@media (prefers-color-scheme: dark){svg{color:#ddd}}"
    svg = svg.replace("fill: #ffffff", "fill: none").replace("stroke: #000000", "stroke: currentColor")
    return svg.replace('<style type="text/css">', f'<style type="text/css">{rule}', 1)
