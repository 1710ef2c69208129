"""From texts to translations: preparation (text to ids), the engine, and assembly (ids to text).

`stream` runs the three at the same time; `jobs` is what they hand on.
"""
