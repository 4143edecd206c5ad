"""Conversion of checkpoints of the original RoFormer family, without the framework that wrote them.

The command `roformer convert` and the function `modeling_roformer.conversion.convert.convert` are its two entrances.
"""
