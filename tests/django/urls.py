from django.contrib import admin
from django.urls import path

from tests.django.app import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("order/", views.order),
    path("order/fail/", views.order_and_fail),
    path("order/after/", views.order_after_commit),
]
