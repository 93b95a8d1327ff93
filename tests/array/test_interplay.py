"""Libraries that speak the array API standard compute with arrays: SciPy, scikit-learn, array_api_compat and array_api_extra.

They are told to by settings that they read when they are imported, so all of it is called in one process of its own.
"""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import search_path

import aiodev
from aiodev import array_api, kernels

#: Names that a library calls, and how: with arrays of NumPy's, or of ours, and their namespace.
CASES: dict[str, Callable[..., Any]] = {}


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


def data() -> dict[str, np.ndarray[Any, Any]]:
    """What is computed with, by the names of parameters: a matrix, labels, targets, a vector."""
    matrix = np.random.default_rng(0).standard_normal((40, 4))
    labels = (matrix[:, 0] + matrix[:, 1] > 0).astype(np.int64)
    return {"x": matrix, "y": labels, "target": matrix @ np.arange(4.0), "v": np.abs(matrix[:, 2]) + 0.5}


# SciPy


@case
def scipy_special(x: Any, v: Any) -> Any:
    from scipy import special

    return special.logsumexp(x, axis=0), special.softmax(x, axis=1), special.ndtr(v), special.xlogy(v, v), special.gammaln(v)


@case
def scipy_stats_of_samples(x: Any, v: Any) -> Any:
    from scipy import stats

    return stats.zscore(x), stats.skew(x), stats.kurtosis(x), stats.variation(x), stats.gmean(v), stats.entropy(v)


@case
def scipy_stats_tests(x: Any) -> Any:
    from scipy import stats

    found = stats.ttest_1samp(x, 0.0), stats.ttest_ind(x, x * x), stats.pearsonr(x[:, 0], x[:, 1]), stats.normaltest(x)
    return [(one.statistic, one.pvalue) for one in found]


@case
def scipy_signal(v: Any, x: Any) -> Any:
    from scipy import signal

    return signal.fftconvolve(v, x[:5, 0]), signal.convolve(v, x[:5, 0], method="direct"), signal.detrend(v, type="constant")


@case
def scipy_fft(v: Any) -> Any:
    from scipy import fft

    return abs(fft.fft(v)), abs(fft.rfft(v)), fft.dct(v)


@case
def scipy_integrate(v: Any) -> Any:
    from scipy import integrate

    return integrate.trapezoid(v), integrate.cumulative_trapezoid(v)


@case
def scipy_cluster(x: Any) -> Any:
    from scipy.cluster import vq

    return vq.whiten(x), vq.vq(x, x[:3, :])


@case
def scipy_ndimage(x: Any) -> Any:
    from scipy import ndimage

    return ndimage.gaussian_filter(x, 1.0)


# scikit-learn


@case
def sklearn_preprocessing(x: Any, y: Any) -> Any:
    from sklearn import preprocessing as p

    made = [p.StandardScaler(), p.MinMaxScaler(), p.MaxAbsScaler(), p.Normalizer(), p.Binarizer(), p.PolynomialFeatures()]
    return [*(own.fit_transform(x) for own in made), p.LabelEncoder().fit_transform(y), p.LabelBinarizer().fit_transform(y)]


@case
def sklearn_pca(x: Any) -> Any:
    from sklearn.decomposition import PCA

    return [abs(PCA(2, svd_solver=solver).fit_transform(x)) for solver in ("full", "covariance_eigh")]


@case
def sklearn_ridge(x: Any, target: Any) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(solver="svd").fit(x, target).predict(x)


@case
def sklearn_linear_discriminant_analysis(x: Any, y: Any) -> Any:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return LinearDiscriminantAnalysis().fit(x, y).predict(x)


@case
def sklearn_logistic_regression(x: Any, y: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression().fit(x, y).predict(x)


@case
def sklearn_naive_bayes(x: Any, y: Any) -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB().fit(x, y).predict(x)


@case
def sklearn_model_selection(x: Any, y: Any) -> Any:
    from sklearn.model_selection import cross_val_predict, train_test_split
    from sklearn.naive_bayes import GaussianNB

    return train_test_split(x, y, random_state=0), cross_val_predict(GaussianNB(), x, y)


@case
def sklearn_metrics_of_classes(y: Any) -> Any:
    from sklearn import metrics

    names = ("accuracy_score", "f1_score", "precision_score", "recall_score", "zero_one_loss", "confusion_matrix")
    return [getattr(metrics, name)(y, y[::-1]) for name in names]


@case
def sklearn_metrics_of_numbers(target: Any, v: Any) -> Any:
    from sklearn import metrics

    names = ("mean_squared_error", "mean_absolute_error", "r2_score", "explained_variance_score", "max_error")
    return [getattr(metrics, name)(target, v) for name in names]


@case
def sklearn_metrics_of_pairs(x: Any) -> Any:
    from sklearn.metrics import pairwise

    return [getattr(pairwise, name)(x, x[:5, :]) for name in ("euclidean_distances", "cosine_similarity", "rbf_kernel")]


# array_api_compat and array_api_extra, as scikit-learn has them


@case
def array_api_compat(x: Any) -> Any:
    from sklearn.externals import array_api_compat as compat

    assert not isinstance(x, aiodev.Array) or compat.array_namespace(x) is array_api
    assert compat.is_array_api_obj(x) and compat.is_writeable_array(x) and not compat.is_lazy_array(x)
    return compat.to_device(x, compat.device(x)), compat.size(x)


@case
def array_api_extra(x: Any, y: Any) -> Any:
    from sklearn.externals import array_api_extra as extra

    made = extra.at(x)[1:, 0].set(9.0), extra.at(x)[x > 1].add(1.0)
    return *made, extra.cov(x.T), extra.kron(x, x[:2, :]), extra.nunique(y), extra.one_hot(y, 2), extra.pad(x, 1)


#: What is computed by factorisations, or by transforms.
NEEDS = {"sklearn_pca": "svd", "sklearn_ridge": "svd", "sklearn_linear_discriminant_analysis": "svd"}
NEEDS |= {"scipy_signal": "fft", "scipy_fft": "fft"}
#: Those of the smaller libraries stand for the others by default: they compile hundreds of kernels.
FEW = {"array_api_compat", "array_api_extra"}
PROGRAM = """
import pickle, runpy, sys
found = runpy.run_path(sys.argv[1])["call_all"](sys.argv[2:])
pickle.dump(found, sys.stdout.buffer)
"""


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [leaf for part in found for leaf in leaves(part)]
    return [(type(found).__name__, found.numpy_blocking() if isinstance(found, aiodev.Array) else np.asarray(found))]


def call_all(names: list[str]) -> dict[str, Any]:
    """What each of these cases gives of NumPy's arrays, and of ours; or raises."""
    import sklearn

    warnings.simplefilter("ignore")
    sklearn.set_config(array_api_dispatch=True)
    given, found = data(), {}
    for name in names:
        function = CASES[name]
        hosts = [given[own] for own in inspect.signature(function).parameters]
        try:
            ours = leaves(function(*(aiodev.asarray(host, device="cpu") for host in hosts)))
            found[name] = leaves(function(*(host.copy() for host in hosts))), ours
        except Exception as error:  # whose test says so
            found[name] = f"{type(error).__name__}: {error}"
    return found


@pytest.fixture(scope="module")
def given(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the cases give that are to be tested."""
    pytest.importorskip("scipy", minversion="1.16", reason="SciPy before 1.16 speaks less of the standard")
    pytest.importorskip("sklearn.externals.array_api_extra", reason="scikit-learn before 1.8 speaks less of the standard")
    environment = {**os.environ, "PYTHONPATH": search_path(os.environ.get("PYTHONPATH", "")), "SCIPY_ARRAY_API": "1"}
    names = {item.callspec.params["name"] for item in request.session.items if item.path == request.path}
    command = [sys.executable, "-c", PROGRAM, __file__, *sorted(names)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr.decode()
    loaded: dict[str, Any] = pickle.loads(done.stdout)
    return loaded


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FEW else pytest.mark.exhaustive) for name in CASES])
def test_libraries_compute_with_our_arrays(name: str, given: dict[str, Any]) -> None:
    """As with NumPy's; where those are arrays of NumPy's, ours are arrays."""
    need = NEEDS.get(name)
    if need is not None and not (hasattr(kernels.linalg, need) or hasattr(kernels, need)):
        pytest.skip(f"aiodev.kernels has no {need}")
    assert not isinstance(given[name], str), given[name]
    expected, found = given[name]
    assert len(expected) == len(found) > 0
    for (kind, host), (our_kind, ours) in zip(expected, found, strict=True):
        np.testing.assert_allclose(ours, host, rtol=1e-6, atol=1e-8)
        assert our_kind == "Array" or kind != "ndarray"
