from __future__ import annotations

from contextlib import suppress
from typing import Any

from django import forms
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

import holdfast.django
from forecasts.models import ScenarioRequest
from forecasts.plots import plot
from forecasts.tasks import run_forecast
from holdfast import RunEnded
from holdfast.django.compat import TaskResultDoesNotExist


class RequestForm(forms.ModelForm):
    class Meta:
        model = ScenarioRequest
        fields = ("scenario", "region", "horizon_months", "paths")


def index(request: HttpRequest) -> HttpResponse:
    form = RequestForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        # The request and its run are committed together, or neither is.
        with transaction.atomic():
            requested = form.save()
            requested.result_id = run_forecast.enqueue(requested.pk).id
            requested.save()
        return redirect("show", requested.pk)
    return render(request, "forecasts/index.html", {"form": form, "requests": ScenarioRequest.objects.all()[:20]})


def find_result(requested: ScenarioRequest) -> Any:
    """The result of a request. Results are removed after HOLDFAST_RETENTION_DAYS."""
    try:
        return run_forecast.get_result(requested.result_id)
    except TaskResultDoesNotExist:
        raise Http404("this forecast is no longer stored") from None


def show(request: HttpRequest, pk: int) -> HttpResponse:
    requested = get_object_or_404(ScenarioRequest, pk=pk)
    result = find_result(requested)
    context = {
        "requested": requested,
        "result": result,
        "progress": holdfast.django.progress(result),
        "reasons": holdfast.django.why(result),
        "plot": plot(result.return_value) if result.status == "SUCCESSFUL" else None,
    }
    return render(request, "forecasts/show.html", context)


@require_POST
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    requested = get_object_or_404(ScenarioRequest, pk=pk)
    # It may have ended since the page was shown.
    with suppress(RunEnded):
        holdfast.django.cancel(find_result(requested), reason="cancelled by a visitor")
    return redirect("show", pk)
