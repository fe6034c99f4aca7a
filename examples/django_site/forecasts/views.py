from __future__ import annotations

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

import holdfast.django
from forecasts.models import ScenarioRequest
from forecasts.plots import plot
from forecasts.tasks import run_forecast


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


def show(request: HttpRequest, pk: int) -> HttpResponse:
    requested = get_object_or_404(ScenarioRequest, pk=pk)
    result = run_forecast.get_result(requested.result_id)
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
    holdfast.django.cancel(run_forecast.get_result(requested.result_id), reason="cancelled by a visitor")
    return redirect("show", pk)
