"""Denoising of a query under a prior."""

from __future__ import annotations

import os

import numpy as np
import torch
from anndata import AnnData

from dice import _log
from dice._anndata.checks import check_expression
from dice._anndata.genes import match_genes
from dice._anndata.matrix import Matrix
from dice._anndata.store import Prior, find_prior
from dice._anndata.write import Slots, plain_params, write
from dice._core.likelihood import observe, estimate_noise
from dice._core.posterior import direct_mean
from dice._device import resolve_device
from dice._errors import InputError
from dice._keys import DenoiseKeys
