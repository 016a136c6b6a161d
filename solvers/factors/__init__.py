"""Factorization machines trained by FTRL-Proximal: (model, GPU type) pairs that were never measured (OLTunes, O1)."""

from __future__ import annotations

from solvers.factors.choice import LearnedFactors, learn_factors
from solvers.factors.machine import FactorLearner, FactorSample, LearningRates

__all__ = ["FactorLearner", "FactorSample", "LearnedFactors", "LearningRates", "learn_factors"]
