from django.contrib import admin
from django.urls import path
from forecasts import views

urlpatterns = [
    path("", views.index, name="index"),
    path("requests/<int:pk>/", views.show, name="show"),
    path("requests/<int:pk>/cancel/", views.cancel, name="cancel"),
    path("admin/", admin.site.urls),
]
